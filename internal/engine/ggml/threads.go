package ggml

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// DefaultThreads returns how many threads compute should use on this machine:
// the physical cores that this process may run on, bounded by the CPU quota of
// its cgroup (v1 or v2, rounded down), and at least 1.
//
// ggml's threads meet in a barrier after each operation, so one thread more
// than there is CPU time for makes all of them wait; two on the hyperthreads
// of one core are slower than one. Source: llama.cpp common/common.cpp,
// common_cpu_get_num_math, which knows neither affinity nor quotas.
func DefaultThreads() int {
	return max(defaultThreads(), 1)
}

// countThreads is DefaultThreads on the tree root, whose names have no leading
// slash (proc/self/cgroup, sys/fs/cgroup/...). cpus holds the ids of the CPUs
// in the affinity mask.
func countThreads(root fs.FS, cpus []int) int {
	n := physicalCores(root, cpus)
	if q := cgroupQuota(root); q < float64(n) {
		n = int(q)
	}
	return max(n, 1)
}

// physicalCores counts the distinct cores among cpus. A CPU whose topology
// cannot be read counts as a core of its own.
func physicalCores(root fs.FS, cpus []int) int {
	cores := make(map[string]bool, len(cpus))
	for _, cpu := range cpus {
		id := strconv.Itoa(cpu)
		key := "cpu" + id
		// thread_siblings_list is the older name of core_cpus_list.
		for _, name := range []string{"core_cpus_list", "thread_siblings_list"} {
			b, err := fs.ReadFile(root, "sys/devices/system/cpu/cpu"+id+"/topology/"+name)
			if s := strings.TrimSpace(string(b)); err == nil && s != "" {
				key = s
				break
			}
		}
		cores[key] = true
	}
	return len(cores)
}

// cgroupQuota returns the CPU quota of this process in CPUs, the smallest over
// its cgroup and all above it, or +Inf when nothing limits it.
func cgroupQuota(root fs.FS) float64 {
	quota := math.Inf(1)
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		b = []byte("0::/\n1:cpu:/\n") // proc may be hidden; the tops of both trees may not
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		dirs, read := []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"}, quotaV2
		if f[1] != "" { // v1: the controllers' names
			if !slices.Contains(strings.Split(f[1], ","), "cpu") {
				continue
			}
			dirs, read = []string{"sys/fs/cgroup/" + f[1], "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"}, quotaV1
		}
		for _, dir := range dirs {
			quota = min(quota, quotaUpwards(root, dir, f[2], read))
		}
	}
	return quota
}

// quotaUpwards returns the smallest quota from mount/group up to mount itself.
// In a container the path can name groups that are not visible here; the
// groups that cannot be read limit nothing, and the mount point is then the
// container's own group.
func quotaUpwards(root fs.FS, mount, group string, read func(fs.FS, string) (float64, bool)) float64 {
	quota := math.Inf(1)
	// Cleaning it as an absolute path keeps "/../x", which the kernel writes
	// for groups outside the namespace, inside the mount.
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		if q, ok := read(root, strings.TrimSuffix(mount+group, "/")); ok {
			quota = min(quota, q)
		}
		if group == "/" {
			return quota
		}
	}
}

// quotaV2 reads cpu.max: "max 100000" or "150000 100000", both in µs.
func quotaV2(root fs.FS, dir string) (float64, bool) {
	b, err := fs.ReadFile(root, dir+"/cpu.max")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b))
	if len(f) != 2 {
		return 0, false
	}
	return ratio(f[0], f[1])
}

// quotaV1 reads cpu.cfs_quota_us (-1 is no limit) and cpu.cfs_period_us.
func quotaV1(root fs.FS, dir string) (float64, bool) {
	q, err := fs.ReadFile(root, dir+"/cpu.cfs_quota_us")
	if err != nil {
		return 0, false
	}
	p, err := fs.ReadFile(root, dir+"/cpu.cfs_period_us")
	if err != nil {
		return 0, false
	}
	return ratio(strings.TrimSpace(string(q)), strings.TrimSpace(string(p)))
}

// ratio returns quota/period when both are positive numbers.
func ratio(quota, period string) (float64, bool) {
	q, err := strconv.ParseFloat(quota, 64)
	if err != nil || !(q > 0) {
		return 0, false
	}
	p, err := strconv.ParseFloat(period, 64)
	if err != nil || !(p > 0) {
		return 0, false
	}
	return q / p, true
}
