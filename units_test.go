package psyche

import (
	"os"
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
		for line := range strings.Lines(string(text)) {
			if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
				set[key] = value
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
	}
}
