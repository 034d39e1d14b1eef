"""Whether a genotype is one of a search space, checked connection by connection."""


def assert_allowed(genotype, space, *, zero):
    for c, cell in enumerate((genotype.normal, genotype.reduce)):
        assert len(cell) == space.nodes
        for j, node in enumerate(cell):
            assert len(node) == space.kept(j)
            assert len(set(node)) == len(node)
            if space.distinct:
                assert len({connection.predecessor for connection in node}) == len(node)
            for connection in node:
                assert space.flat(connection) in space.candidates_of(c, j)
                assert zero or connection.operation != "none"
    if space.alike:
        assert genotype.normal == genotype.reduce
