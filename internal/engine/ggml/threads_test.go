package ggml

import (
	"runtime"
	"testing"
	"testing/fstest"
)

// tree makes a fake root from name, text pairs.
func tree(pairs ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		fs[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fs
}

func TestCountThreads(t *testing.T) {
	const cpu = "sys/devices/system/cpu/cpu"
	const sib = "/topology/thread_siblings_list"
	// 4 CPUs on 2 cores; 0 and 2 share one.
	topo := []string{cpu + "0" + sib, "0,2\n", cpu + "1" + sib, "1,3\n", cpu + "2" + sib, "0,2\n", cpu + "3" + sib, "1,3\n"}
	four, eight := []int{0, 1, 2, 3}, []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, tt := range []struct {
		name string
		cpus []int
		root fstest.MapFS
		want int
	}{
		{"no files", four, tree(), 4},
		{"no cpus", nil, tree(), 1},
		{"siblings", four, tree(topo...), 2},
		{"affinity to one core", []int{0, 2}, tree(topo...), 1},
		{"affinity to two cores", []int{2, 3}, tree(topo...), 2},
		{"core_cpus_list wins", []int{0, 1}, tree(append(topo[:4:4], cpu+"0/topology/core_cpus_list", "0-1\n", cpu+"1/topology/core_cpus_list", "0-1\n")...), 1},
		{"part of the topology", eight, tree(topo...), 6},
		{"v2 quota floors", eight, tree("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/cpu.max", "350000 100000\n"), 3},
		{"v2 below one", eight, tree("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/cpu.max", "50000 100000\n"), 1},
		{"v2 max", eight, tree("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/cpu.max", "max 100000\n"), 8},
		{"v2 above the cores", four, tree("proc/self/cgroup", "0::/\n", "sys/fs/cgroup/cpu.max", "900000 100000\n"), 4},
		{"v2 parent is smaller", eight, tree("proc/self/cgroup", "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max", "500000 100000", "sys/fs/cgroup/a/cpu.max", "200000 100000"), 2},
		{"v2 path not visible", eight, tree("proc/self/cgroup", "0::/../../x\n", "sys/fs/cgroup/cpu.max", "200000 100000"), 2},
		{"v2 hybrid mount", eight, tree("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/unified/a/cpu.max", "200000 100000"), 2},
		{"v1 quota", eight, tree("proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/a\n0::/\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"), 2},
		{"v1 in a container", eight, tree("proc/self/cgroup", "3:cpuacct,cpu:/docker/1\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"), 3},
		{"v1 unlimited", eight, tree("proc/self/cgroup", "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"), 8},
		{"cpuset is not cpu", eight, tree("proc/self/cgroup", "1:cpuset:/\n", "sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000", "sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000"), 8},
		{"garbage", eight, tree("proc/self/cgroup", "x\n:::\n0::\n", "sys/fs/cgroup/cpu.max", "NaN 0\n"), 8},
		{"zero period", eight, tree("sys/fs/cgroup/cpu.max", "1 0\n"), 8},
		{"no proc", eight, tree("sys/fs/cgroup/cpu.max", "200000 100000\n"), 2},
	} {
		if got := countThreads(tt.root, tt.cpus); got != tt.want {
			t.Errorf("%s: countThreads = %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestDefaultThreads(t *testing.T) {
	if n := DefaultThreads(); n < 1 || n > runtime.NumCPU() {
		t.Errorf("DefaultThreads() = %d, want 1 to %d", n, runtime.NumCPU())
	}
}
