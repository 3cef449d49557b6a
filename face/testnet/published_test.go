package testnet

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/record/config"
)

func TestExtrasBecomeFlags(t *testing.T) {
	e := Extras{
		LogLevel: "debug", WriteDistroData: "distro", FirstClientCheckpoint: "org/out", HFToken: "secret", OptimStats: 5, EventsDir: "events",
		EvalTasks: "arc_easy", PromptTask: true, WandbProject: "p", WandbGroup: "g", WandbEntity: "e",
	}
	first, second := strings.Join(e.clientFlags(0), " "), strings.Join(e.clientFlags(1), " ")
	const common = "--allow-private-repos --optim-stats-steps 5 --eval-tasks arc_easy --prompt-task --wandb-project p --wandb-group g --wandb-entity e"
	if want := "--log-level debug --write-gradients-dir distro/client-1 --hub-repo org/out " + common; first != want {
		t.Errorf("first client: %s, want %s", first, want)
	}
	if want := "--log-level debug --write-gradients-dir distro/client-2 " + common; second != want {
		t.Errorf("second client: %s, want %s", second, want)
	}
	if env := e.clientEnv(); !slices.Equal(env, []string{"HF_TOKEN=secret"}) || strings.Contains(first, "secret") {
		t.Errorf("environment %v, flags %s", env, first)
	}
	if flags := e.serverFlags(); !slices.Equal(flags, []string{"--log-level", "debug"}) {
		t.Errorf("server: %v", flags)
	}
	n := &network{dir: "run", options: Options{Extras: e}}
	if n.eventsDir(1) != filepath.Join("events", "client-2") {
		t.Errorf("events in %s", n.eventsDir(1))
	}
	n.options.Extras = Extras{}
	if n.eventsDir(1) != n.clientDir(1) || len(n.options.clientFlags(0))+len(n.options.clientEnv())+len(n.options.serverFlags()) != 0 {
		t.Error("nothing was requested")
	}
}

func TestUsualPort(t *testing.T) {
	if got, err := port(1234); got != 1234 || err != nil {
		t.Errorf("got %d, %v; want 1234 and nil error", got, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:20000")
	if err != nil { // the port is taken
		if got, err := port(0); got == usualPort || err != nil {
			t.Errorf("got %d, %v; want got != usualPort and nil error", got, err)
		}
		return
	}
	if got, err := port(0); got == usualPort || got == 0 || err != nil {
		t.Errorf("a port in use: got %d, %v", got, err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestServedData checks that a run's data is found in the folder that its data.toml names.
func TestServedData(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seed := "[" + strings.TrimSuffix(strings.Repeat("7, ", 32), ", ") + "]"
	write("config/run/data.toml", "dir = \"../../data\"\ntoken_size = \"TwoBytes\"\nseq_len = 8\nshuffle_seed = "+seed+"\n")
	at, run := filepath.Join(dir, "config", "run"), testRun()
	run.Model.DataLocations = []config.DataLocation{{Server: &config.ServerData{Addr: net.JoinHostPort("localhost", strconv.Itoa(unusedPort(t)))}}}
	golden.Message(t, "no data", checkData(at, run, Chain{}))
	write("data/train.bin", "")
	if err := checkData(at, run, Chain{}); err != nil {
		t.Error(err)
	}
	if got := heldOutBeside(at, run); got != "" {
		t.Errorf("held out: %s", got)
	}
	write("data/heldout/test.ds", "")
	if got, want := heldOutBeside(at, run), filepath.Join(dir, "data", "heldout"); got != want {
		t.Errorf("held out: %s, want %s", got, want)
	}
	run.Model.MaxSeqLen = 9
	golden.Message(t, "another length", checkData(at, run, Chain{}))
	run.Model.MaxSeqLen = 8
	n := &network{dir: filepath.Join(dir, "runs"), run: run, options: Options{ConfigPath: at}}
	write("runs/server/x", "")
	want := filepath.Join(at, "data.toml")
	if got, err := n.keptDataConfig(); err != nil || got != want {
		t.Errorf("got %v, %v; want nil error and %v", got, err, want)
	}
	n.options.ConfigPath = "" // resumed
	if got, err := n.keptDataConfig(); err != nil || got != want {
		t.Errorf("resumed: got %v, %v", got, err)
	}
	if err := os.Remove(want); err != nil {
		t.Fatal(err)
	}
	if _, err := n.keptDataConfig(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("resumed without the file: %v", err)
	}
	run.Model.DataLocations = nil
	if path, _, err := servedData(at, run); path != "" || err != nil {
		t.Errorf("a run that asks no server: %s, %v", path, err)
	}
}

func unusedPort(t *testing.T) int {
	t.Helper()
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestDataThatNoClientWouldGet checks that data that clients could not get is refused before
// anything starts.
func TestDataThatNoClientWouldGet(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free := net.JoinHostPort("127.0.0.1", strconv.Itoa(unusedPort(t)))
	for name, test := range map[string]struct {
		at    config.ServerData
		chain bool
		ok    bool
	}{
		"free port":       {config.ServerData{Addr: free}, true, true},
		"no port":         {config.ServerData{Addr: "here"}, false, false},
		"another machine": {config.ServerData{Addr: "192.0.2.1:20001"}, false, false},
		"port in use":     {config.ServerData{Addr: taken.Addr().String()}, false, false},
		"key":             {config.ServerData{Addr: free, Key: "abc"}, true, false},
	} {
		run := testRun()
		run.Model.DataLocations = []config.DataLocation{{Server: &test.at}}
		err := checkServed("data.toml", run, Chain{Used: test.chain})
		if test.ok && err != nil {
			t.Errorf("%+v: %v", test.at, err)
		} else if !test.ok {
			golden.Message(t, name, err, strconv.Itoa(taken.Addr().(*net.TCPAddr).Port), "PORT")
		}
	}
}
