from written_runs import write_run as write_run
