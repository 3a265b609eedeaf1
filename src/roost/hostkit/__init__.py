"""What every process of ours on a host shares: talk, lanes of work, files and images."""
