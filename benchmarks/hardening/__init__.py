"""What somebody who means harm, or does it by mistake, costs everybody else.

A row is measured on the shipped server, a process of its own, while another process does the harm
and this one asks as anybody would. To add rows, write a module with `jobs(sizes, folder)` and name
it in `main.jobs_of`.
"""
