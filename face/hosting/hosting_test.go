package hosting

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/recipe"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/invite"
)

// asClient is the environment variable that makes the test binary a psyche-client without libtorch.
const asClient = "PSYCHE_TEST_HOSTING_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) != "" {
		if err := fakeClient(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fakeClient creates an empty model, reports a training of 1,000 tokens per second, continues a prompt with the name of
// the model, or serves a model until it is interrupted.
func fakeClient(command string, args []string) error {
	switch {
	case command == "generate":
		at := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--prompt=") })
		_, err := fmt.Printf("%s writes %s\n", strings.TrimPrefix(args[at], "--prompt="), args[at-1])
		return err
	case command == "serve-model" && os.Getenv(asClient) == "without a model":
		return errors.New("the model is too large")
	case command == "serve-model":
		time.Sleep(time.Minute)
		return nil
	}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	text := map[string]*string{}
	for _, name := range []string{"config", "seed", "tokenizer", "output", "model", "data-path", "seq-len", "optimizer", "total-batch", "micro-batch", "steps", "events-dir"} {
		text[name] = flags.String(name, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if command == "init-model" {
		content, err := os.ReadFile(*text["config"])
		return errors.Join(err, os.Mkdir(*text["output"], 0o755), os.WriteFile(filepath.Join(*text["output"], "config.json"), content, 0o600))
	}
	log, err := event.Open(filepath.Join(*text["events-dir"], "events.jsonl"))
	if err != nil {
		return err
	}
	for step := range uint32(3) {
		err = errors.Join(err, log.Append(event.Trained{Step: step + 1, Tokens: 100, Seconds: 0.1}))
	}
	return errors.Join(err, log.Close())
}

// options returns the options for preparing a run on a text of several files, without starting the run.
func options(t *testing.T) Options {
	t.Helper()
	t.Setenv(asClient, "1")
	texts := filepath.Join(t.TempDir(), "my poems")
	for i := range 4 {
		write(t, filepath.Join(texts, fmt.Sprintf("%d.txt", i)), strings.Repeat("A rose is a rose is a rose.\n", 400))
	}
	return Options{
		Texts: []string{texts}, Dir: filepath.Join(t.TempDir(), "run"), Friends: 2, Link: 20, Hours: 1, Model: "small",
		PublicAddr: recipe.Loopback, Port: 40000, PrepareOnly: true, Server: "none", Client: os.Args[0],
		Caller: Caller{Local: func(_ context.Context, paths []string) ([]string, error) { return paths, nil },
			LoadTokenizer: func(_ context.Context, name string) (*tokenizer.Tokenizer, error) {
				if name == "bytes" {
					return tokenizer.Bytes(), nil
				}
				return tokenizer.Load(name)
			},
			StateFolder: func() (string, error) { return filepath.Join(texts, "..", "state"), nil },
			OwnAddress:  func() string { return "192.0.2.7" },
			Serving:     func() {}, ShowQR: func(string) error { return nil }, Out: io.Discard, Err: io.Discard,
		}}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func must(t *testing.T, o Options) {
	t.Helper()
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// TestPrepare prepares a run, and checks its files. A second call changes nothing.
func TestPrepare(t *testing.T) {
	o := options(t)
	must(t, o)
	run, err := config.LoadState(o.path(stateFile))
	if err != nil || run.RunID != "my-poems" || len(run.Warnings) > 0 {
		t.Errorf("state.toml: %v, run %q, warnings %q", err, run.RunID, run.Warnings)
	}
	if _, err := config.LoadDataServer(o.path("data.toml")); err != nil {
		t.Error(err)
	}
	text, found, err := manifest.Read(o.path("data"))
	if err != nil || !found || text.HeldOutTokens == 0 {
		t.Errorf("tokens: %v, %v, %d held out", found, err, text.HeldOutTokens)
	}
	args := (&host{Options: o}).clientProcess(invite.Link{}).Args
	if i := slices.Index(args, "--held-out"); i < 0 || args[i+1] != o.path("data", "heldout") {
		t.Errorf("the client starts with %q, want the held-out tokens", args)
	}
	before := stamps(t, o.Dir)
	must(t, o)
	if after := stamps(t, o.Dir); !slices.Equal(before, after) {
		t.Errorf("a second call changed files: %q, before %q", after, before)
	}
}

// TestProbation checks that members that know each other have neither audits nor probation, and that strangers have both.
func TestProbation(t *testing.T) {
	for _, open := range []bool{false, true} {
		o := options(t)
		if o.Open = open; open {
			o.Friends = 23
		}
		must(t, o)
		run, err := config.LoadState(o.path(stateFile))
		if err != nil {
			t.Fatal(err)
		}
		if steps, percent := run.Config.ProbationSteps, run.Config.VerificationPercent; steps > 0 != open || percent > 0 != open {
			t.Errorf("open %t: a probation of %d rounds, and audits by %d %% of the members", open, steps, percent)
		}
	}
}

// stamps returns the names and times of the prepared files, except files that each call rewrites.
func stamps(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, name := range []string{"data/data.json", "data/train-00000.ds", "model/config.json"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name+info.ModTime().String())
	}
	return append(all, read(t, filepath.Join(dir, stateFile)), read(t, filepath.Join(dir, recordFile)))
}

// TestChangesBeforeTheRun checks that changed settings repeat the steps that depend on them.
func TestChangesBeforeTheRun(t *testing.T) {
	o := options(t)
	must(t, o)
	first := stamps(t, o.Dir)
	o.Hours = 8
	must(t, o)
	second := stamps(t, o.Dir)
	if !slices.Equal(first[:3], second[:3]) || first[3] == second[3] {
		t.Error("after a change of --hours, only state.toml must change")
	}
	touched := filepath.Join(o.Texts[0], "0.txt")
	if err := os.Chtimes(touched, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	must(t, o)
	if third := stamps(t, o.Dir); !slices.Equal(second[:4], third[:4]) {
		t.Error("a new time of a file with the same content changes the run")
	}
	write(t, touched, strings.Repeat("Another rose.\n", 1000))
	must(t, o)
	if third := stamps(t, o.Dir); third[0] == second[0] || third[2] != second[2] {
		t.Error("after a change of the text, only the tokens must change")
	}
}

// TestEditedState checks that an edited state.toml is kept, and never overwritten.
func TestEditedState(t *testing.T) {
	o := options(t)
	must(t, o)
	edited := strings.Replace(read(t, o.path(stateFile)), "cooldown_time = 30", "cooldown_time = 31", 1)
	write(t, o.path(stateFile), edited)
	must(t, o)
	if read(t, o.path(stateFile)) != edited {
		t.Error("an edited state.toml was overwritten")
	}
	o.Hours = 8
	for range 2 {
		if err := Run(t.Context(), o); !errors.Is(err, errEdited) {
			t.Errorf("changed settings with an edited state.toml: %v, want %v", err, errEdited)
		}
	}
	o.Again = true
	must(t, o)
	if read(t, o.Dir+".old-1/"+stateFile) != edited || read(t, o.path(stateFile)) == edited {
		t.Error("--again must keep the earlier folder")
	}
}

// TestBegunRun checks that the settings of a run that has begun cannot change, and that it continues
// without its text, or if the text has changed, but never tokenizes another text.
func TestBegunRun(t *testing.T) {
	o := options(t)
	must(t, o)
	write(t, server.JournalPath(o.path("server"), "my-poems"), "")
	o.Name = "my-poems"
	must(t, o)
	other := o
	other.Friends = 3
	if err := Run(t.Context(), other); !errors.Is(err, errBegun) || !strings.Contains(err.Error(), "--friends was 2 and is 3") {
		t.Errorf("%v, want %v", err, errBegun)
	}
	texts := o.Texts[0]
	if err := os.Rename(texts, texts+" moved"); err != nil {
		t.Fatal(err)
	}
	must(t, o)
	write(t, filepath.Join(texts, "new.txt"), "New.\n")
	must(t, o)
	if err := os.Remove(o.path("data", "train-00000.ds")); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); !errors.Is(err, errData) {
		t.Errorf("without token files and with another text: %v, want %v", err, errData)
	}
	if err := os.Remove(o.path(recordFile)); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); !errors.Is(err, errBegun) {
		t.Errorf("a run without a record: %v, want %v", err, errBegun)
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, o *Options)
		want   error
	}{
		{"no text", func(_ *testing.T, o *Options) { o.Texts = nil }, ErrOptions},
		{"missing text", func(_ *testing.T, o *Options) { o.Texts = []string{"/nowhere"} }, ErrOptions},
		{"empty folder", func(t *testing.T, o *Options) { o.Texts = []string{t.TempDir()} }, recipe.ErrText},
		{"three lines", func(t *testing.T, o *Options) {
			o.Texts = []string{filepath.Join(t.TempDir(), "three.txt")}
			write(t, o.Texts[0], "one\ntwo\nthree\n")
		}, recipe.ErrText},
		{"one text and a picture", func(t *testing.T, o *Options) {
			o.Texts = []string{t.TempDir()}
			write(t, filepath.Join(o.Texts[0], "book.txt"), strings.Repeat("A rose is a rose.\n", 4000))
			write(t, filepath.Join(o.Texts[0], "cover.jpg"), "\xff\xd8\xff\xe0")
		}, recipe.ErrText},
		{"folder within the text", func(_ *testing.T, o *Options) { o.Dir = filepath.Join(o.Texts[0], "run") }, ErrOptions},
		{"unknown model", func(_ *testing.T, o *Options) { o.Model = "huge" }, ErrOptions},
		{"a name that is no folder", func(_ *testing.T, o *Options) { o.Name, o.Dir = "..", "" }, ErrOptions},
		{"an address of releases without http", func(_ *testing.T, o *Options) { o.InstallURL = "example.com" }, ErrOptions},
		{"an address of releases with a space", func(_ *testing.T, o *Options) { o.InstallURL = "https://a/ b" }, ErrOptions},
		{"no version", func(_ *testing.T, o *Options) { o.MinClient = "v1" }, ErrOptions},
		{"an address with a port", func(_ *testing.T, o *Options) { o.PublicAddr = "host.example:39405" }, ErrOptions},
		{"too high a port", func(_ *testing.T, o *Options) { o.Port = 65533 }, ErrOptions},
		{"negative friends", func(_ *testing.T, o *Options) { o.Friends = -7 }, recipe.ErrRequest},
		{"a name that is not UTF-8", func(_ *testing.T, o *Options) { o.Name = "a\xff" }, recipe.ErrRequest},
		{"few strangers", func(_ *testing.T, o *Options) { o.Open = true }, recipe.ErrRequest},
		{"another host", func(t *testing.T, o *Options) {
			lock, err := filelock.OpenFolder(o.Dir, 0o755)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Close() })
		}, errBusy},
		{"again while another host runs", func(t *testing.T, o *Options) {
			must(t, *o)
			lock, err := filelock.OpenFolder(o.Dir, 0o755)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lock.Close() })
			o.Again = true
		}, errBusy},
		{"no client", func(_ *testing.T, o *Options) { o.Client = "/nowhere" }, ErrOptions},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := options(t)
			test.change(t, &o)
			if err := Run(t.Context(), o); !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// TestOtherFolder checks that the command does not change a folder that has other files.
func TestOtherFolder(t *testing.T) {
	for _, again := range []bool{false, true} {
		o := options(t)
		o.Again = again
		weights := o.path("model", "weights")
		write(t, weights, "precious")
		if err := Run(t.Context(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%v, want %v", err, ErrOptions)
		}
		if read(t, weights) != "precious" {
			t.Error("the file was changed")
		}
	}
}

// TestMissingTokens checks that the command restores missing token files before and after the start of the run.
func TestMissingTokens(t *testing.T) {
	o := options(t)
	o.Name = "poems"
	must(t, o)
	tokens := o.path("data", "train-00000.ds")
	want := read(t, tokens)
	for _, begun := range []bool{false, true} {
		if begun {
			write(t, server.JournalPath(o.path("server"), o.Name), "")
		}
		if err := os.Remove(tokens); err != nil {
			t.Fatal(err)
		}
		must(t, o)
		if read(t, tokens) != want {
			t.Errorf("begun %v: other tokens", begun)
		}
	}
	if err := errors.Join(os.Truncate(tokens, 10), os.RemoveAll(o.Texts[0])); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); !errors.Is(err, errData) {
		t.Errorf("without text: %v, want %v", err, errData)
	}
}

// TestWrongEdits checks that wrong values are refused before the server starts. With another run_id, the
// server would create a second run.
func TestWrongEdits(t *testing.T) {
	o := options(t)
	must(t, o)
	made := read(t, o.path(stateFile))
	for old, edited := range map[string]string{`"my-poems"`: `"other"`, "cooldown_time = 30": "cooldown_time = -3"} {
		write(t, o.path(stateFile), strings.Replace(made, old, edited, 1))
		if err := Run(t.Context(), o); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v, want %v", edited, err, ErrState)
		}
	}
}

// TestPorts checks that the UDP port of the client is checked too.
func TestPorts(t *testing.T) {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(recipe.Loopback, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // of a test
	port := conn.LocalAddr().(*net.UDPAddr).Port
	if err := checkPorts(uint16(port-clientPort), allPorts); !errors.Is(err, errPort) {
		t.Errorf("%v, want %v", err, errPort)
	}
}

// TestChatPort checks that a run continues without a chat if another program uses only the port of the chat.
func TestChatPort(t *testing.T) {
	for _, test := range []struct {
		port uint16 // in use
		chat bool
		want error
	}{{chatPort, true, nil}, {chatPort, false, nil}, {dataPort, true, errPort}} {
		listener, err := net.Listen("tcp", net.JoinHostPort(recipe.Loopback, "0"))
		if err != nil {
			t.Fatal(err)
		}
		first := uint16(listener.Addr().(*net.TCPAddr).Port) - test.port
		if test.want == nil && checkPorts(first, chatPort) != nil {
			t.Skip("another program uses a port next to the test's port")
		}
		h := host{Options: Options{Chat: test.chat, Caller: Caller{Out: io.Discard}}, record: record{FirstPort: first}}
		if err := h.awaitPorts(t.Context()); !errors.Is(err, test.want) || err == nil && h.Chat {
			t.Errorf("port %d in use, chat %v: %v, want %v; the chat is %v", test.port, test.chat, err, test.want, h.Chat)
		}
		_ = listener.Close()
	}
}

// TestPortsInUse checks that a run which has not begun gets other ports if its own are in use.
func TestPortsInUse(t *testing.T) {
	o := options(t)
	o.Port = 0
	must(t, o)
	h := host{Options: o}
	if _, err := h.readRecord(); err != nil {
		t.Fatal(err)
	}
	first := h.FirstPort
	listener, err := net.Listen("tcp", net.JoinHostPort(recipe.Loopback, strconv.Itoa(int(first))))
	if err != nil {
		t.Skip(err) // another program was faster
	}
	defer listener.Close() //nolint:errcheck // of a test
	must(t, o)
	if _, err := h.readRecord(); err != nil || h.FirstPort == first {
		t.Errorf("%v, port %d is unchanged", err, h.FirstPort)
	}
}

// TestAccess checks that other users cannot read the text and the keys.
func TestAccess(t *testing.T) {
	o := options(t)
	must(t, o)
	info, err := os.Stat(o.Dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, mode %v", err, info.Mode())
	}
}

// TestInstallLine checks that the invitation contains the line that installs, if it has an address.
func TestInstallLine(t *testing.T) {
	for address, want := range map[string]string{
		"":                              "(docs/install.md):\n\n    psyche-client join ",
		"https://example.com/releases/": ":\n\n    curl -fsSL https://example.com/releases/install.sh | sh\n    ~/.local/bin/psyche-client join ",
	} {
		var out strings.Builder
		h := &host{Options: Options{InstallURL: address, Caller: Caller{Out: &out, ShowQR: func(string) error { return nil }}}}
		h.invite(invite.Link{Host: "example.com", Port: 1, RunID: "run"})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q: no %q in %s", address, want, out.String())
		}
	}
}

// TestInterrupt checks that an interrupted preparation can continue.
func TestInterrupt(t *testing.T) {
	o := options(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	must(t, o)
}

// TestSingleText checks that the end of a single text is held out, at a line break or between characters.
func TestSingleText(t *testing.T) {
	for name, text := range map[string]string{
		"lines":       strings.Repeat("A rose is a rose.\n", 4000),
		"no lines":    strings.Repeat("é", 40000),
		"a last line": strings.Repeat("é", 40000) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			path := filepath.Join(t.TempDir(), "rose.txt")
			write(t, path, text)
			o.Texts = []string{path}
			must(t, o)
			parts, err := filepath.Glob(o.path("text-*", "*.txt"))
			if err != nil || len(parts) != 2 {
				t.Fatal(parts, err)
			}
			held, train := read(t, parts[0]), read(t, parts[1])
			if train+held != text || len(held) < len(text)/100 || len(held) > len(text)/5 || strings.ToValidUTF8(held, "?") != held {
				t.Errorf("%d bytes are held out of %d", len(held), len(text))
			}
			write(t, path, text+text)
			must(t, o)
			if parts, err := filepath.Glob(o.path("text-*")); err != nil || len(parts) != 1 {
				t.Errorf("%v, parts %q, want one folder for the new text", err, parts)
			}
		})
	}
}

func TestNameOf(t *testing.T) {
	for path, want := range map[string]string{
		"/home/me/my poems": "my-poems", "/tmp/Faust.txt": "Faust", "hf://datasets/owner/name": "name", "/tmp/…": "run", "/": "run",
		"/tmp/" + strings.Repeat("long", 20): strings.Repeat("long", 8),
	} {
		if got := nameOf(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestTokenizerNextToTheText checks that a tokenizer is found, and goes into the model's folder.
func TestTokenizerNextToTheText(t *testing.T) {
	o := options(t)
	file := filepath.Join(filepath.Dir(o.Texts[0]), tokenizer.JSONFile)
	write(t, file, string(tokenizer.Bytes().JSON()))
	must(t, o)
	text, _, err := manifest.Read(o.path("data"))
	if err != nil || text.Tokenizer.Name != file {
		t.Errorf("%v, tokenizer %s", err, text.Tokenizer.Name)
	}
	if read(t, o.path("model", tokenizer.JSONFile)) != string(tokenizer.Bytes().JSON()) {
		t.Error("the model has another tokenizer")
	}
	before := stamps(t, o.Dir)
	write(t, file, string(tokenizer.Bytes().JSON())+"\n")
	must(t, o)
	if after := stamps(t, o.Dir); before[0] == after[0] || before[2] == after[2] {
		t.Error("after a change of the tokenizer, tokens and model must change")
	}
}

// stopper cancels a context when a text is written.
type stopper struct {
	text   string
	cancel context.CancelFunc
}

func (s stopper) Write(p []byte) (int, error) {
	if strings.Contains(string(p), s.text) {
		s.cancel()
	}
	return len(p), nil
}

// TestClientEndsEarly checks that an error of the client soon after its start ends the command if the
// run is new. If the run had begun, the server stays for the friends, and the client starts again.
func TestClientEndsEarly(t *testing.T) {
	o := options(t)
	o.Client = filepath.Join(t.TempDir(), "client")
	write(t, o.Client, "#!/bin/sh\nexit 3\n")
	if err := errors.Join(os.Chmod(o.Client, 0o700), os.MkdirAll(o.path("client"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, begun := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		o.Out = stopper{"starts again", cancel}
		h := &host{Options: o}
		if err := h.takePart(ctx, invite.Link{}, begun); (err == nil) != begun || (ctx.Err() != nil) != begun {
			t.Errorf("the run had begun: %v; the client ended with %v", begun, err)
		}
		cancel()
	}
}

// TestServerRequires checks that the server gets the required version and the address of releases.
func TestServerRequires(t *testing.T) {
	h := &host{Options: Options{Dir: t.TempDir(), MinClient: "0.2.0", InstallURL: "https://example.com"}}
	args := strings.Join(h.serverArguments(), " ")
	for _, want := range []string{" --min-client-version 0.2.0", " --install-url https://example.com"} {
		if !strings.Contains(args, want) {
			t.Errorf("no%s in %s", want, args)
		}
	}
}

// TestMemberCheckpointsOfAnyFolder checks that the server finds the models of the host's client, whatever the
// characters of the run's folder.
func TestMemberCheckpointsOfAnyFolder(t *testing.T) {
	for _, name := range []string{"run", "my [run", "a[b]c", "run]", `a*b`, "why?", `back\slash`} {
		if filepath.Separator == '\\' && strings.ContainsAny(name, `*?\`) {
			continue
		}
		h := &host{Options: Options{Dir: filepath.Join(t.TempDir(), name)}}
		want := h.path("client", "psyche", "runs", "run-1")
		if err := os.MkdirAll(want, 0o700); err != nil {
			t.Fatal(err)
		}
		args := h.serverArguments()
		pattern := args[slices.Index(args, "--member-checkpoints")+1]
		if found, err := filepath.Glob(pattern); err != nil || !slices.Equal(found, []string{want}) {
			t.Errorf("%s: %v, %v", pattern, found, err)
		}
	}
}
