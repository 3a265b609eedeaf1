"""The compiled loops: the only place where Numba appears.

Arrays and integers in, caller-owned arrays filled, no exceptions: a kernel returns a code. Every
kernel here has a plain-loop twin in tests/naive, and the whole package also runs with the
compiler off (NUMBA_DISABLE_JIT=1).

    fixed_point  ratios without overflow
    keys         the score of a host that does not depend on the request
    tally        group members per fault domain
    domain_bits  racks and zones as bits, to pass over hosts that affinity rules out
    fit          may this host take this VM, and at what penalty
    ranking      hosts ordered by key, in blocks that know their largest headroom
    scores       the scores that depend on the request, as far as amounts decide them
    search       the best host by walking a ranking in the order of the score
    bounded      the best host by walking a ranking of another order, past blocks without it
    fragments    what a host is worth to the requests that typically come
    least_loss   the host that loses least of that
    scan         any score of one host, and a draw from all that fit
    victims      the VMs whose leaving makes room at the least harm
    charging     one VM added or taken away
    decide       K requests one after the other
    addresses    arrays handed over without the cost of handing them over
    directory    one decision, called that way
    running      compiled code or, until that is there, the body that it is made of
"""
