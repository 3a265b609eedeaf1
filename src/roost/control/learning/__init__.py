"""What VMs and hosts will use and when VMs end, learnt and brought to the fleet that decides.

gathering   series of the store on the grid of the analysis
profiling   one VM's, for who asks
reporting   all VMs and hosts in one report, made in the background
telling     that report in the words of the API
waiting     what needs compiled kernels, refused until they are
routes      over HTTP
lives       how long VMs live: ends counted in the ledger, and what is left of who is there
learning    now and then all of them: what is foreseen, in the fleet's columns until it is too old
"""
