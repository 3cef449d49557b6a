package dash_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/face/qrcode"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/invite"
)

// hostile is a run's name that contains markup.
const hostile = `<img src=x onerror="document.title='owned'">';alert(1)//`

// hostileMember is a member's name that contains markup.
const hostileMember = `<img src=x onerror=alert(1)>`

// page serves the runs of a folder, once all of them have been read.
func page(t *testing.T, runs ...dashtest.Options) *httptest.Server {
	t.Helper()
	return pageWith(t, built(), runs...)
}

// pageWith serves the runs of a folder with a verifier.
func pageWith(t *testing.T, verifier *dash.Verifier, runs ...dashtest.Options) *httptest.Server {
	t.Helper()
	dir := t.TempDir()
	for _, o := range runs {
		if err := dashtest.Write(filepath.Join(dir, url.PathEscape(o.RunID)+".journal"), o); err != nil {
			t.Fatal(err)
		}
	}
	tellOf(t, dir, runs)
	g := gather.New(t.Context(), gather.Options{})
	t.Cleanup(g.Close)
	if err := g.Watch([]string{dir}, func(_ string, f *gather.Found) {
		f.Join, f.Source = dash.Join{Server: dash.HostPlaceholder + ":39405"}, "a run that the tests make"
	}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		ready := 0
		for _, run := range g.Runs() {
			if view := run.Log.View(); view.State != nil && run.Reported != nil && run.Reported.Version() == told {
				ready++
			}
		}
		if ready == len(runs) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d runs are read", ready, len(runs))
		}
	}
	web := httptest.NewServer(dash.New(g.Runs, verifier))
	t.Cleanup(web.Close)
	return web
}

// built returns the verifier that make verifier built, or nil if it is missing.
func built() *dash.Verifier {
	v, err := dash.ReadVerifier(filepath.Join("..", "..", "build", "lib"))
	if err != nil {
		return nil
	}
	return v
}

// told is the number of events in the log that tellOf writes for a member.
const told = 7

// tellOf writes an event log of one member of each run. The member gets a model from an archive,
// uploads a model, and reports an audit.
func tellOf(t *testing.T, dir string, runs []dashtest.Options) {
	t.Helper()
	for i, o := range runs {
		folder := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		log, err := event.Open(filepath.Join(folder, "events.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []event.Body{
			event.Started{Role: "client", ID: dashtest.Key(1).ID().String(), RunID: o.RunID},
			event.Trained{Step: 1, Loss: 2.5, Tokens: 100, Seconds: 0.5},
			event.Transfer{What: event.TransferDownload, Step: 12, Bytes: 3 << 30, Total: 4 << 30},
			event.Transfer{What: event.TransferUpload, Step: 8, Bytes: 1 << 20, Total: 4 << 30},
			event.Audit{Step: 8, Outcome: "passed"}, event.Audit{Step: 8, Outcome: "unclear"}, event.Audit{Step: 9, Outcome: "passed"},
		} {
			if err := log.Append(body); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// answer is an answer of the page.
type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, address string, header http.Header) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

func TestAnswers(t *testing.T) {
	web := page(t, dashtest.Options{RunID: hostile, Name: hostileMember, Members: 4, Rounds: 8, RoundsPerEpoch: 4}, dashtest.Options{RunID: "plain", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	key := url.QueryEscape(hostile)
	for path, want := range map[string]int{
		"/": 200, "/app.js": 200, "/charts.js": 200, "/learning.js": 200, "/parts.js": 200, "/trust.js": 200, "/colours.css": 200, "/style.css": 200, "/icon.svg": 200, "/icon.svg?tone=good": 200, "/icon.svg?tone=x": 400, "/card.png": 200, "/api/runs": 200,
		"/api/run?run=plain": 200, "/api/run?run=" + key: 200, "/api/run?run=plain&last=100": 200, "/api/log?run=plain&before=3": 200,
		"/api/log?run=plain&before=4000000000": 200,
		"/api/run?run=none":                    404, "/api/run": 404, "/api/log": 404, "/assets/": 404, "/../handler.go": 404, "/app.css": 404,
		"/api/run?run=plain&last=7": 400, "/api/run?run=plain&last=x": 400, "/api/log?run=plain&before=-1": 400,
	} {
		got := ask(t, web.URL+path, nil)
		if got.status != want {
			t.Errorf("GET %s: %d, want %d: %s", path, got.status, want, got.body)
		}
		policy := got.header.Get("Content-Security-Policy")
		for _, rule := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, rule) {
				t.Errorf("GET %s: the policy %q has no %s", path, policy, rule)
			}
		}
		if got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s may be interpreted as a different type", path)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		request, err := http.NewRequestWithContext(t.Context(), method, web.URL+"/api/runs", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, response.Status)
		}
	}
}

// TestNameOfAMember checks that a name is shown next to the key of the member that chose it, and
// that it contains no markup, even for a program that treats the answer as a page.
func TestNameOfAMember(t *testing.T) {
	web := page(t, dashtest.Options{RunID: "named", Name: hostileMember, Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	got := ask(t, web.URL+"/api/run?run=named", nil)
	if strings.Contains(got.body, "<") {
		t.Error("there is markup in the answer")
	}
	var run struct {
		Status struct{ Names map[string]string }
	}
	if err := json.Unmarshal([]byte(got.body), &run); err != nil {
		t.Fatal(err)
	}
	if names := run.Status.Names; len(names) != 1 || names[dashtest.Key(0).ID().String()] != hostileMember {
		t.Errorf("names %q", names)
	}
}

// TestOneAnswerForMany checks that unchanged data is not sent again, and that the answer is the
// same with and without compression.
func TestOneAnswerForMany(t *testing.T) {
	web := page(t, dashtest.Options{RunID: "plain", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	address := web.URL + "/api/run?run=plain"
	first := ask(t, address, nil)
	plain := ask(t, address, http.Header{"Accept-Encoding": {"identity"}})
	if first.body != plain.body || !json.Valid([]byte(first.body)) {
		t.Error("the answers differ")
	}
	time.Sleep(600 * time.Millisecond) // until the cached answer has expired
	if again := ask(t, address, http.Header{"If-None-Match": {first.header.Get("ETag")}}); again.status != http.StatusNotModified {
		t.Errorf("asked again: %d", again.status)
	}
}

// TestJoinCommand checks that a command contains only plain words.
func TestJoinCommand(t *testing.T) {
	for _, test := range []struct{ name, runID, want string }{
		{"plain", "tiny-1", "psyche-client train --run-id tiny-1 \\\n  --server-addr @@HOST@@:39405 \\\n  --server-key EvFUfisEScFuZSqDXagC17m3bpP32B74dseMHtzQ5TNb \\\n  --checkpoint-dir checkpoints"},
		{"hostile", hostile, ""},
		{"a flag", "--help", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			state, err := dashtest.Begin(dashtest.Options{RunID: test.runID, Members: 4, Rounds: 4, RoundsPerEpoch: 4})
			if err != nil {
				t.Fatal(err)
			}
			page := dash.New(func() []dash.Run {
				return []dash.Run{{Key: "k", State: func() *coordinator.State { return &state }, Join: dash.Join{Server: "@@HOST@@:39405"}}}
			}, nil)
			answer := httptest.NewRecorder()
			page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/run?run=k", nil))
			var shown struct {
				Join string `json:"join"`
				Note string `json:"join_note"`
			}
			if err := json.Unmarshal(answer.Body.Bytes(), &shown); err != nil {
				t.Fatal(err)
			}
			if shown.Join != test.want {
				t.Errorf("%q, %q", shown.Join, shown.Note)
			}
			golden.Message(t, test.name, errors.New(shown.Note))
		})
	}
}

// TestJoinCommandOfDataOnDisk checks that the command has --data-path if a location is a folder of the
// client: it refuses to read such a folder without the user's permission.
func TestJoinCommandOfDataOnDisk(t *testing.T) {
	for name, location := range map[string]config.DataLocation{
		"token files": {Local: &config.LocalData{Path: "tokens", TokenSize: config.TwoBytes}},
		"samples":     {Preprocessed: &config.PreprocessedData{Path: "samples"}},
	} {
		state, err := dashtest.Begin(dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
		if err != nil {
			t.Fatal(err)
		}
		model, err := config.DecodeModel(state.Model.Definition)
		if err != nil {
			t.Fatal(err)
		}
		model.DataLocations = []config.DataLocation{location}
		if state.Model.Definition, err = config.EncodeModel(model); err != nil {
			t.Fatal(err)
		}
		page := dash.New(func() []dash.Run {
			return []dash.Run{{Key: "k", State: func() *coordinator.State { return &state }, Join: dash.Join{Server: dash.HostPlaceholder + ":39405"}}}
		}, nil)
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/run?run=k", nil))
		var shown struct {
			Join string `json:"join"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &shown); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(shown.Join, "--data-path DATA") {
			t.Errorf("%s: %s", name, shown.Join)
		}
	}
}

// TestJoinNeeds checks that the needs of a run are shown only if the size of the model is known.
func TestJoinNeeds(t *testing.T) {
	state, err := dashtest.Begin(dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		parameters uint64
		phase      coordinator.RunState
		want       uint64
	}{{0, state.RunState, 0}, {1 << 20, state.RunState, 4 << 20}, {1 << 20, coordinator.Finished, 0}} {
		state.RunState = test.phase
		page := dash.New(func() []dash.Run {
			return []dash.Run{{Key: "k", State: func() *coordinator.State { return &state }, Join: dash.Join{Server: "host:39405", Parameters: test.parameters, Install: "curl"}}}
		}, nil)
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/api/run?run=k", nil))
		var shown struct {
			Install string       `json:"join_install"`
			Needs   memory.Bytes `json:"join_needs"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &shown); err != nil {
			t.Fatal(err)
		}
		if n := shown.Needs; n.Model != test.want || n.Memory < 3*test.want || (n.Result > 0) != (test.want > 0) {
			t.Errorf("of %d parameters: %+v, want a model of %d bytes", test.parameters, n, test.want)
		}
		if over := test.phase == coordinator.Finished; (shown.Install == "") != over {
			t.Errorf("the run is over: %v, and the command that installs is %q", over, shown.Install)
		}
	}
}

// TestQR checks that only a run that can be joined has a code. It contains the link to the run, at
// the host name that the browser used.
func TestQR(t *testing.T) {
	going := dashtest.Options{RunID: "tiny", Members: 6, Rounds: 12, RoundsPerEpoch: 4}
	dir := t.TempDir()
	path := filepath.Join(dir, "tiny.journal")
	if err := dashtest.Write(path, going); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	over := pageWith(t, nil, going)
	if got := ask(t, over.URL+"/api/qr?run=tiny&host=host.example", nil); got.status != http.StatusNotFound {
		t.Errorf("of a run that is over: %+v", got)
	}
	if err := os.WriteFile(path, log[:len(log)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	g := gather.New(t.Context(), gather.Options{})
	t.Cleanup(g.Close)
	if err := g.Watch([]string{dir}, func(_ string, f *gather.Found) { f.Join.Server = dash.HostPlaceholder + ":39405" }); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); g.Runs()[0].Log.View().State == nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	web := httptest.NewServer(dash.New(g.Runs, nil))
	t.Cleanup(web.Close)
	run := g.Runs()[0].Log.View()
	want, err := qrcode.Of(fmt.Sprintf("psyche://host.example:39405/tiny?key=%s&genesis=%x", dashtest.Key(-1).ID(), run.Run))
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, web.URL+"/api/qr?run=tiny&host=host.example", nil); got.body != string(want.SVG()) || got.header.Get("Content-Type") != "image/svg+xml" {
		t.Errorf("%+v, want %s", got, want.SVG())
	}
	for query, status := range map[string]int{"run=tiny": http.StatusBadRequest, "run=tiny&host=a%2Fb": http.StatusBadRequest, "run=other&host=h": http.StatusNotFound, "run=tiny&host=" + strings.Repeat("a", 4000): http.StatusBadRequest} {
		if got := ask(t, web.URL+"/api/qr?"+query, nil); got.status != status {
			t.Errorf("%s: %d, want %d", query, got.status, status)
		}
	}
}

// TestChainLink checks that the page of a run on a chain has the link to the run and its code, and
// states that the member's key pays.
func TestChainLink(t *testing.T) {
	state, err := dashtest.Begin(dashtest.Options{RunID: "tiny", Members: 4, Rounds: 4, RoundsPerEpoch: 4})
	if err != nil {
		t.Fatal(err)
	}
	link := invite.ChainLink{Program: dashtest.Key(1).ID(), RunID: "tiny", Authority: dashtest.Key(2).ID(), RPC: []string{"https://node.example"}}
	join := dash.Join{Flags: []string{"--rpc URL", "--program-id KEY"}, Chain: &link}
	page := dash.New(func() []dash.Run {
		return []dash.Run{
			{Key: "linked", State: func() *coordinator.State { return &state }, Join: join},
			{Key: "bare", State: func() *coordinator.State { return &state }, Join: dash.Join{Flags: join.Flags}},
		}
	}, nil)
	web := httptest.NewServer(page)
	t.Cleanup(web.Close)
	for key, want := range map[string]string{"linked": "psyche-client join '" + link.String() + "'", "bare": `--rpc URL \`} {
		var shown struct {
			Join string `json:"join"`
			Note string `json:"join_note"`
			Link bool   `json:"join_link"`
		}
		if err := json.Unmarshal([]byte(ask(t, web.URL+"/api/run?run="+key, nil).body), &shown); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(shown.Join, want) || shown.Link != (key == "linked") {
			t.Errorf("%s: %+v", key, shown)
		}
		golden.Message(t, key, errors.New(shown.Note))
	}
	code, err := qrcode.Of(link.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, web.URL+"/api/qr?run=linked&host=host.example", nil); got.body != string(code.SVG()) {
		t.Errorf("the code is %+v", got)
	}
	if got := ask(t, web.URL+"/api/qr?run=bare&host=host.example", nil); got.status != http.StatusNotFound {
		t.Errorf("a code of no link: %+v", got)
	}
}
