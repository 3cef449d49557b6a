package hosting

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/face/dash/samples"
	"github.com/psyche-go/psyche/record/invite"
)

// prepared returns a host of a prepared run, and its output.
func prepared(t *testing.T) (*host, *strings.Builder) {
	t.Helper()
	o := options(t)
	must(t, o)
	out := &strings.Builder{}
	o.Out = out
	h := &host{Options: o, key: newKey()}
	if found, err := h.readRecord(); err != nil || !found {
		t.Fatalf("%v, found %v", err, found)
	}
	return h, out
}

// TestSamples checks the samples of a finished run, and that a second call does not generate them again.
func TestSamples(t *testing.T) {
	h, _ := prepared(t)
	link := invite.Link{Host: "127.0.0.1", Port: 40000, RunID: h.Name}
	if err := h.sample(t.Context(), link, 8); err != nil {
		t.Fatal(err)
	}
	s, err := samples.Read(h.path(samplesFile))
	if err != nil || s.RunID != h.Name || s.Prompt != "A rose is a rose is a rose." || len(s.Texts) != 2 {
		t.Fatalf("%v: samples %+v", err, s)
	}
	if first, last := s.Texts[0], s.Texts[1]; first != (samples.Text{Step: 0, Text: " writes " + h.path("model")}) || last != (samples.Text{Step: 8, Text: " writes " + link.String()}) {
		t.Errorf("texts %+v", s.Texts)
	}
	h.Client = "/nowhere"
	if err := h.sample(t.Context(), link, 8); err != nil {
		t.Errorf("the samples are generated again: %v", err)
	}
	if err := h.sample(t.Context(), link, 9); err == nil {
		t.Error("the samples of another model are not generated")
	}
	if s, err = samples.Read(h.path(samplesFile)); err != nil || len(s.Texts) != 2 {
		t.Errorf("%v: after an error, the earlier samples are %+v", err, s)
	}
}

// TestPromptWithoutHeldOutText checks the default prompt.
func TestPromptWithoutHeldOutText(t *testing.T) {
	h, _ := prepared(t)
	if err := os.RemoveAll(h.path("data")); err != nil {
		t.Fatal(err)
	}
	if got := h.prompt(t.Context()); got != defaultPrompt {
		t.Errorf("prompt %q", got)
	}
}

func TestFirstWords(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "\n\n  # The title\nmore": "The title", "one": "", "one two": "one", "ends.\n": "ends.", "of Windows\r\n": "of Windows", "a\x1bb c\n": "", "\xff\xfe\n": "",
		strings.Repeat("word ", 20): strings.TrimSpace(strings.Repeat("word ", 12)), strings.Repeat("é", 70): "",
	} {
		if got := firstWords(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		got := firstWords(rapid.String().Draw(t, "text"))
		if len(got) > promptBytes || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) || got != strings.TrimSpace(got) {
			t.Errorf("%q", got)
		}
	})
}

// TestChatProcess checks that an end of the context ends the model's server, and that a server that fails at once is
// not started again.
func TestChatProcess(t *testing.T) {
	h, out := prepared(t)
	h.Chat = true
	write(t, h.path("client", "log"), "")
	link := invite.Link{Host: "127.0.0.1", Port: 40000, RunID: h.Name}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	h.product(ctx, link, 8)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || strings.Contains(out.String(), "no chat") {
		t.Errorf("the model's server ended early: %s", out)
	}
	t.Setenv(asClient, "without a model")
	h.product(t.Context(), link, 8)
	if !strings.Contains(out.String(), "The page has no chat: ") || !strings.Contains(out.String(), "the model is too large") {
		t.Errorf("output %q", out)
	}
	h.Chat = false
	out.Reset()
	h.product(t.Context(), link, 8)
	if out.String() != "" || strings.Contains(strings.Join(h.serverArguments(), " "), "--chat-addr") {
		t.Errorf("without a chat: %q, %q", out, h.serverArguments())
	}
}
