package eventlog

import (
	"os"
	"testing"
)

// TestLogsDoNotMeet starts a run whose name equals the name of the main run's log.
func TestLogsDoNotMeet(t *testing.T) {
	logs, err := Open(Options{Dir: t.TempDir(), Main: "main"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"events", "%65vents"} {
		if _, err := logs.open(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := logs.Close(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(logs.Dir); err != nil || len(files) != 3 {
		t.Errorf("%d logs for 3 runs: %v, %v", len(files), files, err)
	}
}
