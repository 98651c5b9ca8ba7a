"""One sharding rule per primitive: an operator is its factors.

A factor is an independent loop dimension of the operator. A rule says for every dimension of every operand and result which
factor it is made of; a choice of mesh axes per factor then fixes the sharding of all operands and results at once.

Kinds of factor:
    map     sharding it needs nothing: every device does its slice.
    reduce  it is summed (or otherwise combined) over: sharding it leaves a partial result on every device.
    halo    a window slides along it: sharding it costs an exchange of the border.
    fixed   it must stay whole.
"""
