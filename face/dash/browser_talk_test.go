package dash_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/gather"
	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/face/dash/talk"
)

// spoken is a serve-model without a model. It answers with markup and the texts that it got.
type spoken struct {
	*httptest.Server
	chats bool
	waits atomic.Bool // answers never come
}

func speaks(t *testing.T, runID string, chats bool) *spoken {
	t.Helper()
	s := &spoken{chats: chats}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = fmt.Fprintf(w, `{"data":[{"id":%q,"max_model_len":512,"chats":%v}]}`, runID, chats)
			return
		}
		var body struct {
			Prompt   string         `json:"prompt"`
			Messages []talk.Message `json:"messages"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		if s.waits.Load() {
			<-r.Context().Done()
			return
		}
		got := body.Prompt
		for _, m := range body.Messages {
			got += m.Role + ":" + m.Content + ";"
		}
		text, _ := json.Marshal(hostileMember + " \x1b]0;owned\a" + got)
		_, _ = fmt.Fprintf(w, `{"choices":[{"text":%s,"message":{"content":%s},"finish_reason":"stop"}]}`, text, text)
	}))
	t.Cleanup(s.Close)
	return s
}

// talkingPage serves the page of a run with a chat and samples. The run is finished if it has all its rounds.
func talkingPage(t *testing.T, o dashtest.Options, model *talk.Model, texts *samples.File) *httptest.Server {
	t.Helper()
	dir := t.TempDir()
	if err := dashtest.Write(filepath.Join(dir, "run.journal"), o); err != nil {
		t.Fatal(err)
	}
	g := gather.New(t.Context(), gather.Options{})
	t.Cleanup(g.Close)
	if err := g.Watch([]string{dir}, func(_ string, f *gather.Found) { f.Join = dash.Join{Server: dash.HostPlaceholder + ":39405"} }); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(g.Runs()) == 0 || g.Runs()[0].Log.View().State == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the run was not read")
		}
	}
	web := httptest.NewServer(dash.New(func() []dash.Run {
		list := g.Runs()
		list[0].Key, list[0].Talk, list[0].Samples = o.RunID, model, texts
		return list
	}, nil))
	t.Cleanup(web.Close)
	return web
}

// writeSamples writes hostile samples of the run.
func writeSamples(t *testing.T, path, last string) {
	t.Helper()
	content, err := samples.Samples{RunID: friendsRun.RunID, Prompt: "Once upon", Texts: []samples.Text{{Step: 0, Text: hostileMember}, {Step: 60, Text: last}}}.Encode()
	if err = errors.Join(err, os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// await waits until an expression is true.
func (b *browser) await(t *testing.T, expression string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); b.text(t, expression) != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s stays false; the conversation is %q; the browser reported: %s", expression, b.text(t, `document.querySelector("#talk-log")?.textContent || ""`), b.said())
		}
	}
}

// TestTalk talks to a model without a chat template, with the keyboard only, while the page redraws itself and the model dies.
func TestTalk(t *testing.T) {
	b := open(t)
	s := speaks(t, friendsRun.RunID, false)
	model, err := talk.New(s.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "samples.json")
	writeSamples(t, path, " a time")
	web := talkingPage(t, friendsRun, model, samples.Watch(path))
	for _, window := range []struct {
		name, theme   string
		width, height int64
	}{{"phone", "dark", 390, 844}, {"desktop-dark", "dark", 1440, 900}, {"desktop", "light", 1440, 900}} {
		b.show(t, web.URL, friendsRun.RunID, window.theme, window.width, window.height)
		b.do(t, chromedp.WaitVisible(chromedp.CSS("#talk-text")), chromedp.Focus(chromedp.CSS("#talk-text")), chromedp.KeyEvent("It was a dark"), chromedp.KeyEvent(kb.Enter))
		b.await(t, `document.querySelector("#talk-log .said") !== null`)
		if got := b.text(t, `document.documentElement.scrollWidth <= innerWidth`); got != "true" {
			t.Errorf("%s: the page is wider than the window", window.name)
		}
		b.axe(t)
		b.picture(t, "talk-"+window.name)
	}
	if got, want := b.text(t, `document.querySelector("#talk-log .said").textContent`), "ModelIt was a dark"+hostileMember+" \ufffd]0;owned\ufffdIt was a dark"; got != want {
		t.Errorf("the answer is %q, want %q", got, want)
	}
	if got := b.text(t, `document.querySelectorAll("#talk img, #samples img").length + document.title`); !strings.HasPrefix(got, "0A tiny llama") {
		t.Errorf("markup has an effect: %s", got)
	}
	if got := b.text(t, `[...document.querySelectorAll("#samples figure")].map((f) => f.textContent).join("; ")`); got != "Before trainingOnce upon"+hostileMember+"; After 60 roundsOnce upon a time" {
		t.Errorf("samples %q", got)
	}
	if got := b.text(t, `(() => { const [a, b] = [...document.querySelectorAll("#samples figure")].map((f) => f.getBoundingClientRect()); return a.top === b.top && a.right < b.left; })()`); got != "true" {
		t.Error("the samples are not next to each other")
	}

	b.do(t, chromedp.KeyEvent("unfinished"))
	writeSamples(t, path, " a hill")
	b.await(t, `document.querySelector("#samples").textContent.includes("a hill")`)
	if got := b.text(t, `document.activeElement.id + " " + document.activeElement.value + " " + document.querySelectorAll("#talk-log li").length`); got != "talk-text unfinished 1" {
		t.Errorf("after a redraw: %q", got)
	}

	s.waits.Store(true)
	b.do(t, chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelector("#talk-log .waits") !== null`)
	b.do(t, chromedp.Click(chromedp.CSS("#talk-stop")))
	b.await(t, `document.querySelector("#talk-log .failed") !== null`)
	if got := b.text(t, `document.querySelector("#talk-log .failed").textContent + document.querySelector("#talk-text").value`); got != "PageStopped.unfinished" {
		t.Errorf("after the reader stopped the model: %q", got)
	}
	s.CloseClientConnections()
	s.Close()
	b.do(t, chromedp.Focus(chromedp.CSS("#talk-text")), chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelectorAll("#talk-log .failed").length === 2`)
	if got := b.text(t, `document.querySelector("#talk-log .failed:last-child").textContent`); !strings.HasPrefix(got, "PageNo answer: the model does not answer") {
		t.Errorf("after the model died: %q", got)
	}
	b.do(t, chromedp.Click(chromedp.CSS("#talk-new")))
	b.await(t, `document.querySelector("#no-talk") !== null`) // the commands remain
	if got := b.text(t, `document.querySelector("#use").textContent`); !strings.HasPrefix(got, "psyche-client generate") {
		t.Errorf("the commands are %q", got)
	}
}

// TestConversationWithMemory checks that a model with a chat template gets the earlier messages.
func TestConversationWithMemory(t *testing.T) {
	b := open(t)
	model, err := talk.New(speaks(t, friendsRun.RunID, true).Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	web := talkingPage(t, friendsRun, model, nil)
	b.show(t, web.URL, friendsRun.RunID, "light", 1440, 900)
	b.do(t, chromedp.WaitVisible(chromedp.CSS("#talk-text")), chromedp.Focus(chromedp.CSS("#talk-text")), chromedp.KeyEvent("one"), chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelectorAll("#talk-log .said").length === 1`)
	b.do(t, chromedp.KeyEvent("two"), chromedp.KeyEvent(kb.Enter))
	b.await(t, `document.querySelectorAll("#talk-log .said").length === 2`)
	if got := b.text(t, `document.querySelector("#talk-log").lastChild.textContent`); !strings.HasSuffix(got, "user:one;assistant:"+hostileMember+" \ufffd]0;owned\ufffduser:one;;user:two;") {
		t.Errorf("the model answers %q", got)
	}
	b.axe(t)
}

// TestTalkNeedsAFinishedRun checks the answers for runs without a chat, and for wrong methods.
func TestTalkNeedsAFinishedRun(t *testing.T) {
	model, err := talk.New(speaks(t, friendsRun.RunID, true).Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	waiting := friendsRun
	waiting.Waits = 2
	for _, test := range []struct {
		run    dashtest.Options
		model  *talk.Model
		key    string
		status int
	}{
		{friendsRun, model, friendsRun.RunID, http.StatusOK}, {friendsRun, model, "other", http.StatusNotFound},
		{friendsRun, nil, friendsRun.RunID, http.StatusNotFound}, {waiting, model, friendsRun.RunID, http.StatusNotFound},
	} {
		web := talkingPage(t, test.run, test.model, nil)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, web.URL+"/api/talk?run="+test.key, strings.NewReader(`{"messages":[{"role":"user","content":"a"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != test.status {
			t.Errorf("run %s, model %v: status %d, want %d: %s", test.key, test.model != nil, response.StatusCode, test.status, text)
		}
		if got := ask(t, web.URL+"/api/talk?run="+test.key, nil); got.status != http.StatusMethodNotAllowed {
			t.Errorf("GET: status %d", got.status)
		}
	}
}
