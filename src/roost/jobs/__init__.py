"""Jobs on elastic pools of rented machines: submitted, planned, run, watched, and paid for once.

    compose      the parts of one process, put together
    desk         what users ask and tell; submitting, reading, fetching, stats, explaining do it
    kinds, pools, accounts   the objects beside jobs
    door         what workers ask and tell; assigning and logins make what they are told
    planner      one process assigns and sizes; deciding: what it decides, purely
    lowering     machines beyond limits that were lowered leave
    renting      every process asks providers; catalogue keeps what they offer
    detecting    one process looks for what got stuck
    books, rented, ends   jobs and machines as rows, and what follows from an end
    rows, schemas, bell, unchanged   reading rows; parameters; waking; counting time

A plane is given these parts by `app`; nothing of `control` is seen from here.
"""
