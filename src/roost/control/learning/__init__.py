"""What VMs and hosts will use, learnt from their series and brought to the fleet that decides.

gathering   series of the store on the grid of the analysis
profiling   one VM's, for who asks
reporting   all VMs and hosts in one report, made in the background
telling     that report in the words of the API
routes      over HTTP
learning    now and then all of them: what is foreseen, in the fleet's columns until it is too old
"""
