"""Engine benchmark: speed and memory of placement beside the plain compiled scan.

fleets      the generator: hosts, and requests as columns
plain_scan  the baseline, which is also the judge of every answer
checking    engine and baseline side by side; a difference ends the run
measuring   CPU time, and the sizes of a full and a short run
batch, growth, decision, rules, churn, questions, startup    the rows, by topic
"""
