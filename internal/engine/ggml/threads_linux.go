package ggml

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// defaultThreads reads the affinity mask, the core topology and the cgroups.
func defaultThreads() int {
	return countThreads(os.DirFS("/"), affinity())
}

// affinity returns the ids of the CPUs that this process may run on.
func affinity() []int {
	var set unix.CPUSet
	var cpus []int
	if err := unix.SchedGetaffinity(0, &set); err == nil {
		for i := range len(set) * 64 {
			if set.IsSet(i) {
				cpus = append(cpus, i)
			}
		}
	}
	if len(cpus) == 0 { // more CPUs than the mask holds: the runtime counts them itself
		for i := range runtime.NumCPU() {
			cpus = append(cpus, i)
		}
	}
	return cpus
}
