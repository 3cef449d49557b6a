package psyche

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestUnitsRestartForever: no unit stops for good because a cause lasts for minutes, such as a shortage of memory. A wrong
// command line is not tried again.
func TestUnitsRestartForever(t *testing.T) {
	units, err := filepath.Glob("packaging/systemd/*.service")
	if err != nil || len(units) != 3 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		set := map[string]string{"StartLimitIntervalSec": "10", "StartLimitBurst": "5"} // systemd's defaults
		var environment []string
		for line := range strings.Lines(string(text)) {
			if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
				set[key] = value
				if key == "Environment" {
					environment = append(environment, strings.Fields(value)...)
				}
			}
		}
		number := func(key string) int {
			n, err := strconv.Atoi(set[key])
			if err != nil {
				t.Errorf("%s: %s is %q", unit, key, set[key])
			}
			return n
		}
		if within := number("StartLimitIntervalSec"); within > 0 && within >= number("RestartSec")*number("StartLimitBurst") {
			t.Errorf("%s: %d starts in %d s stop it for good", unit, number("StartLimitBurst"), within)
		}
		if number("RestartSec") < 1 || number("RestartSec") > 60 {
			t.Errorf("%s restarts after %s s", unit, set["RestartSec"])
		}
		prevented, want := strings.Fields(set["RestartPreventExitStatus"]), []string{"2"}
		if strings.Contains(unit, "client") {
			want = append(want, "7")
		}
		if !slices.Equal(prevented, want) || set["Restart"] != "always" && set["Restart"] != "on-failure" {
			t.Errorf("%s: it restarts %s, except after exit codes %v, want %v", unit, set["Restart"], prevented, want)
		}
		if code := crash(t, environment); slices.Contains(prevented, strconv.Itoa(code)) {
			t.Errorf("%s: it does not restart after a crash of Go, whose exit code is %d", unit, code)
		}
		if set["LimitCORE"] != "0" {
			t.Errorf("%s: a crash writes the memory of the program, with its key, to a core file", unit)
		}
	}
}

// crash returns the exit code of a Go program that crashes with these variables; -1 if a signal ended it.
func crash(t *testing.T, environment []string) int {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^TestCrash$")
	command.Env = append(os.Environ(), append(environment, "PSYCHE_TEST_CRASH=1")...)
	command.Dir = t.TempDir() // for a core file
	if err := command.Run(); err == nil {
		t.Fatal("it did not crash")
	}
	return command.ProcessState.ExitCode()
}

// TestCrash ends the process as a bug in Go code does, for crash.
func TestCrash(*testing.T) {
	if os.Getenv("PSYCHE_TEST_CRASH") == "" {
		return
	}
	go panic("crash")
	select {}
}
