"""API benchmark: durable creates, agents and starts of a real control-plane process.

workload    the hosts and VMs that everything here is made of
databases   fresh SQLite files and PostgreSQL databases, seeded through the ledger
serving     server processes: started, waited for, ended by their id
measuring   sizes of a full and a short run; CPU, memory and the disk's own sync time
verifying   what must hold in the database after a run; a finding ends the benchmark
http_load, agent_load, bare_inserts    processes of their own that make the load
creates, agents, startup    the rows, by topic
"""
