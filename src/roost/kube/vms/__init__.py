"""VMs as pods: what a VM asks for, the pod that stands for it, and the controller that keeps it."""
