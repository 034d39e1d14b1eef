"""For tests that every key of a config means something."""


class Reads:
    """A config that remembers which of its keys were read."""

    def __init__(self, config, found=None, prefix=""):
        self.config, self.prefix = config, prefix
        self.found = set() if found is None else found

    def __getattr__(self, name):
        value = getattr(self.config, name)
        if name not in self.config:
            return value  # a method
        if hasattr(value, "items"):
            return Reads(value, self.found, f"{self.prefix}{name}.")
        self.found.add(self.prefix + name)
        return value

    def __getitem__(self, name):
        return getattr(self, name)

    def __iter__(self):
        return iter(self.config)

    def __contains__(self, name):
        return name in self.config

    def get(self, name, default=None):
        return getattr(self, name) if name in self.config else default
