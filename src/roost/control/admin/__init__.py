"""What operators do: projects and quotas, hosts, and the doctor's checks."""
