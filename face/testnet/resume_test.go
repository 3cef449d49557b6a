package testnet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// childVariable makes this program one of a testnet's processes; its value is a checkpoint folder.
const childVariable = "PSYCHE_TESTNET_CHILD"

// brokenRun is a run that no client can take part in.
const brokenRun = "broken"

func TestMain(m *testing.M) {
	if model := os.Getenv(childVariable); model != "" {
		if err := client(model, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// client replaces psyche, with a real server, and psyche-client, with fake clients that only report
// events.
func client(model string, args []string) error {
	flag := func(name string) string {
		if i := slices.Index(args, name); i >= 0 {
			return args[i+1]
		}
		return ""
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "server":
		o := server.Options{Listen: "127.0.0.1:" + flag("--server-port"), SaveStateDir: flag("--save-state-dir")}
		if file := flag("--state"); file != "" {
			run, err := config.LoadState(file)
			if err != nil {
				return err
			}
			run.RunID = flag("--run-id")
			o.Runs = []server.Genesis{run.CoordinatorState}
		}
		return server.Run(ctx, o)
	case "run":
		return errors.New("the run has no members that could close its epoch")
	case "evaluate":
		fmt.Println(`{"loss": 2.5}`)
	case "generate":
		fmt.Println("text")
	case "train":
		if flag("--run-id") == brokenRun {
			return errors.New("broken")
		}
		return fakeTrain(ctx, model, filepath.Join(flag("--events-dir"), eventsFile))
	}
	return nil
}

// fakeTrain does round 1 and waits in its first life. In its second life it does round 3, the last
// round.
func fakeTrain(ctx context.Context, model, path string) (err error) {
	// A client that was stopped before it wrote anything is also in its second life.
	_, missing := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(path)), summaryFile))
	resumed := missing == nil
	log, err := event.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	round := func(step uint32) error {
		return errors.Join(
			log.Append(event.State{RunState: "RoundTrain", Epoch: step, Step: step}),
			log.Append(event.Trained{Step: step, Loss: event.Loss(4 - step), Tokens: 10}),
			log.Append(event.Applied{Step: step, Counted: 1, OwnCounted: true}))
	}
	if err := log.Append(event.Started{}); err != nil {
		return err
	}
	if resumed {
		return errors.Join(round(3), log.Append(event.Checkpoint{Step: 3, Digest: "d3", Dir: model}), log.Append(event.Finished{Digest: "d3"}))
	}
	if err := round(1); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(round(2), errors.New("interrupted")) // its last output
}

// watcher is a display that signals the first round.
type watcher struct {
	mu    sync.Mutex
	steps []uint32
	first func()
}

func (w *watcher) Update(p Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, p.State.Step)
	if p.Changed && p.State.Step == 1 {
		w.first()
	}
}

func (w *watcher) Close() {}

// fakeOptions are the options of a testnet whose processes are this program.
func fakeOptions(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	model := filepath.Join(t.TempDir(), "model")
	err := os.CopyFS(model, os.DirFS("../../files/checkpoint/testdata/own/sharded"))
	if err == nil {
		err = os.WriteFile(filepath.Join(model, "tokenizer.json"), []byte("{}"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(childVariable, model)
	text, err := os.ReadFile("../../configs/smoke/state.toml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("build/quickstart/data"), []byte(filepath.Join(dir, "data")))
	text = bytes.ReplaceAll(text, []byte("build/quickstart/model"), []byte(model))
	for path, content := range map[string][]byte{"state.toml": text, "data/train.ds": nil, "data/heldout/test.ds": nil} {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return Options{
		ConfigPath: dir, NumClients: 3, RunDir: filepath.Join(dir, "runs"), RunID: "../a b",
		ServerBinary: os.Args[0], ClientBinary: os.Args[0], Timeout: time.Minute,
	}
}

func readSummary(t *testing.T, dir string) Summary {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, summaryFile))
	if err != nil {
		t.Fatal(err)
	}
	var s Summary
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestInterruptedRunGoesOn interrupts a run and resumes it.
func TestInterruptedRunGoesOn(t *testing.T) {
	options := fakeOptions(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupt := errors.New("interrupt")
	options.Display = &watcher{first: func() { cancel(interrupt) }}
	_, err := Run(ctx, options)
	dirs, _ := filepath.Glob(filepath.Join(options.RunDir, "*"))
	if len(dirs) == 0 {
		dirs, _ = filepath.Glob(filepath.Join(options.RunDir, ".*"))
	}
	if len(dirs) != 1 || filepath.Dir(dirs[0]) != options.RunDir {
		t.Fatalf("run folders: %q, %v", dirs, err)
	}
	dir := dirs[0]
	if !errors.Is(err, interrupt) || !strings.Contains(err.Error(), "--resume "+dir) {
		t.Errorf("error = %v, want the interrupt and how to continue", err)
	}
	s := readSummary(t, dir)
	if s.Finished || s.RunID != options.RunID || s.TotalRounds != 24 || s.Rounds != 2 || s.LossFirst != 3 || s.HeldOutLossFirst != 2.5 || len(s.Clients) != 3 {
		t.Errorf("summary of the interrupted run: %+v", s)
	}
	if _, err := os.Stat(s.LossCurve); err != nil {
		t.Error(err)
	}
	var text strings.Builder
	s.Print(&text)
	if !strings.Contains(text.String(), "not finished") || strings.Contains(text.String(), "held-out loss") {
		t.Errorf("printed:\n%s", text.String())
	}

	display := &watcher{first: func() { t.Error("a round from before was shown as news") }}
	resumed := Options{
		Resume: dir, ServerBinary: os.Args[0], ClientBinary: os.Args[0], Timeout: time.Minute, Display: display,
	}
	s, err = Run(t.Context(), resumed)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Finished || s.RunID != options.RunID || s.Rounds != 3 || s.LossFirst != 3 || s.LossLast != 1 || s.Clients[2].Digest != "d3" || s.Sample == "" {
		t.Errorf("summary of the whole run: %+v", s)
	}
	if kept := readSummary(t, dir); !kept.Finished || kept.Seconds <= 0 {
		t.Errorf("kept summary: %+v", kept)
	}
}

// TestFailedRunLeavesASummary has clients that end by themselves.
func TestFailedRunLeavesASummary(t *testing.T) {
	options := fakeOptions(t)
	options.RunID, options.Display = brokenRun, &watcher{}
	_, err := Run(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("error = %v, want the client's error, and how to continue", err)
	}
	dirs, _ := filepath.Glob(filepath.Join(options.RunDir, brokenRun+"-*"))
	if len(dirs) != 1 {
		t.Fatalf("run folders: %q", dirs)
	}
	if s := readSummary(t, dirs[0]); s.Finished || s.RunID != brokenRun || s.Rounds != 0 {
		t.Errorf("summary: %+v", s)
	}
}

func TestResumeNeedsARun(t *testing.T) {
	for name, dir := range map[string]string{"no such folder": filepath.Join(t.TempDir(), "none"), "empty folder": t.TempDir()} {
		_, err := Run(t.Context(), Options{Resume: dir, Timeout: time.Minute, Display: &watcher{}})
		if _, ok := errors.AsType[FlagError](err); !ok {
			t.Errorf("%s: error = %v, want a FlagError", name, err)
		}
		golden.Message(t, name, err)
	}
}

// TestResumeWaitsForTheOldOne resumes a run whose testnet has not ended yet, and again after it has
// ended.
func TestResumeWaitsForTheOldOne(t *testing.T) {
	n := &network{dir: t.TempDir()}
	if err := n.claim(); err != nil {
		t.Fatal(err)
	}
	resume := func() error {
		_, err := Run(t.Context(), Options{Resume: n.dir, Timeout: time.Minute, Display: &watcher{}})
		return err
	}
	if err := resume(); filelock.Supported {
		golden.Message(t, "while the testnet runs", err)
	}
	n.release()
	for range 2 { // a refusal stores nothing
		golden.Message(t, "after the testnet", resume())
	}
}

// TestRunDirStaysInItsParent starts two runs within one second whose names would lead to a
// different folder.
func TestRunDirStaysInItsParent(t *testing.T) {
	parent := t.TempDir()
	var made []string
	for range 2 {
		dir, err := makeRunDir(parent, "../../x")
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(dir) != parent || slices.Contains(made, dir) {
			t.Errorf("made %s after %q, want a new folder in %s", dir, made, parent)
		}
		made = append(made, dir)
	}
}

// TestResumeOfAChain checks that folders of runs on chains that cannot be resumed, and unsuitable
// options, are refused.
func TestResumeOfAChain(t *testing.T) {
	for name, test := range map[string]struct {
		file  string
		asked Chain
		used  bool
		ok    bool
	}{
		"kept":                {ledgerFile, Chain{}, true, true},
		"kept, and named":     {ledgerFile, Chain{Used: true}, true, true},
		"kept, a validator's": {ledgerFile, Chain{Used: true, Validator: "v"}, false, false},
		"of a validator":      {validatorLedger, Chain{Used: true}, false, false},
		"of a server":         {"run.journal", Chain{Used: true}, false, false},
		"of a server, unsaid": {"run.journal", Chain{}, false, true},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, test.file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		used, err := wasOnChain(dir, test.asked)
		if used != test.used || (err == nil) != test.ok {
			t.Errorf("%s: %t, %v, want %t", name, used, err, test.used)
		}
		if !test.ok {
			golden.Message(t, name, err)
		}
	}
}

// TestCommandsToRestartOnAValidator records the commands that restart a run on a validator: with
// its ledger, and without a new genesis.
func TestCommandsToRestartOnAValidator(t *testing.T) {
	n := &network{dir: t.TempDir()}
	n.run.RunID, n.options.ServerBinary = "run", "psyche"
	n.server = &child.Process{Program: "my validator", Args: []string{"--ledger", "here", "--reset", "--quiet"}}
	n.clients = []*child.Process{{Program: "psyche-client", Args: []string{"train", "--rpc", "there"}, Env: []string{"A=b"}}}
	n.hostFlags = []string{"--rpc", "there"}
	if err := n.noteCommands(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(n.dir, byHandFile))
	want := "'my validator' --ledger here --quiet\nenv A=b psyche-client train --rpc there\npsyche run set-paused resume --run-id run --keypair " + n.authorityPath() + " --rpc there\n"
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}
