package sysmemory

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFields(t *testing.T) {
	for text, want := range map[string]uint64{"MemTotal: 9 kB\nMemAvailable:   12 kB\n": 12, "MemAvailable: x kB": 0, "MemAvailable:": 0, "NoMemAvailable: 12": 0, "": 0} {
		if got := field([]byte(text), "MemAvailable:"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// TestAvailable checks the available memory of systems with control groups of both versions.
func TestAvailable(t *testing.T) {
	const machine = 1000 << 10
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"no groups": {nil, machine},
		"version 2": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/memory.current": "2000\n",
			"sys/fs/cgroup/memory.stat": "anon 7\ninactive_file 500\n"}, 3500},
		"files that were read twice": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000\n", "sys/fs/cgroup/memory.current": "4900\n",
			"sys/fs/cgroup/memory.stat": "active_file 4000\ninactive_file 500\n"}, 4600},
		"files that were read twice, version 1": {map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "4900\n", "sys/fs/cgroup/memory/memory.stat": "active_file 1\ntotal_active_file 4000\n"}, 4100},
		"no limit": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "2000\n"}, machine},
		"a limit of a group above": {map[string]string{"proc/self/cgroup": "0::/job/step\n", "sys/fs/cgroup/job/step/memory.max": "max\n",
			"sys/fs/cgroup/job/memory.max": "4000\n", "sys/fs/cgroup/job/memory.current": "1000\n"}, 3000},
		"version 1": {map[string]string{"proc/self/cgroup": "5:devices:/x\n4:memory:/job\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "6000\n", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "5000\n",
			"sys/fs/cgroup/memory/job/memory.stat": "inactive_file 1\ntotal_inactive_file 3000\n"}, 4000},
		"a container of version 1 that sees its path in the host": {map[string]string{"proc/self/cgroup": "4:cpu,memory:/docker/8f\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "8000\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "9000\n"}, 0},
		"odd lines": {map[string]string{"proc/self/cgroup": "\n::\n0::relative\n4:memory\n"}, machine},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 2000 kB\nMemAvailable: 1000 kB\n")
		for path, text := range c.files {
			write(t, filepath.Join(root, path), text)
		}
		if got := availableIn(root); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if got := availableIn(t.TempDir()); got != 0 {
		t.Errorf("without /proc: %d", got)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
