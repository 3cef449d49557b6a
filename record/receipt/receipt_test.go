package receipt

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
)

func some() Receipt {
	hash := strings.Repeat("0f", 32)
	return Receipt{
		Format: format, Run: hash, RunID: "run", Member: identity.ID{1}.String(), Entries: 9, Head: hash, Time: 5, Rounds: 3, Tokens: 30, AllTokens: 120,
		First: 1, Last: 4, Witnessed: 2, Voted: 1, ModelStep: 4, Model: hash, InModel: 3, TokensInModel: 30,
	}
}

// TestDecode checks that Decode returns an encoded receipt, and refuses everything else.
func TestDecode(t *testing.T) {
	want := some()
	if got, err := Decode(want.Encode()); err != nil || got != want {
		t.Errorf("got %+v, %v; want nil error and %+v", got, err, want)
	}
	if share := want.Share(); share != 0.25 {
		t.Errorf("share %v", share)
	}
	text := string(want.Encode())
	for name, b := range map[string]string{
		"nothing":        "",
		"twice":          text + text,
		"a field twice":  strings.Replace(text, `"rounds": 3,`, `"rounds": 9, "rounds": 3,`, 1),
		"unknown field":  strings.Replace(text, `"rounds"`, `"round"`, 1),
		"other spaces":   strings.Replace(text, `"rounds": 3`, `"rounds":3`, 1),
		"negative":       strings.Replace(text, `"rounds": 3`, `"rounds": -3`, 1),
		"format":         strings.Replace(text, `"format": 1`, `"format": 2`, 1),
		"member":         strings.Replace(text, want.Member, "me", 1),
		"a hash":         strings.Replace(text, want.Head, want.Head[2:], 1),
		"a large hash":   strings.Replace(text, want.Head, strings.ToUpper(want.Head[:2])+want.Head, 1),
		"no entry":       strings.Replace(text, `"entries": 9`, `"entries": 0`, 1),
		"long":           strings.Replace(text, `"run_id": "run"`, `"run_id": "`+strings.Repeat("x", MaxSize)+`"`, 1),
		"a long run id":  strings.Replace(text, `"run_id": "run"`, `"run_id": "`+strings.Repeat("x", 300)+`"`, 1),
		"no model":       strings.Replace(text, `"model": "`+want.Model, `"model": "`, 1),
		"something more": text + "x",
	} {
		if got, err := Decode([]byte(b)); !errors.Is(err, ErrReceipt) {
			t.Errorf("%s: got %+v, %v; want error ErrReceipt", name, got, err)
		}
	}
}

// TestVerify checks that Verify compares every field with the log.
func TestVerify(t *testing.T) {
	if err := some().Verify(some()); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(r *Receipt){
		"run": func(r *Receipt) { r.Run = "x" }, "entries": func(r *Receipt) { r.Entries++ }, "head": func(r *Receipt) { r.Head = "x" },
		"rounds": func(r *Receipt) { r.Rounds++ }, "tokens": func(r *Receipt) { r.Tokens++ }, "all": func(r *Receipt) { r.AllTokens-- },
		"model": func(r *Receipt) { r.TokensInModel++ }, "member": func(r *Receipt) { r.Member = "x" }, "time": func(r *Receipt) { r.Time++ },
	} {
		r := some()
		change(&r)
		if err := r.Verify(some()); !errors.Is(err, ErrReceipt) {
			t.Errorf("%s: got %v; want error ErrReceipt", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(some().Encode())
	f.Add([]byte(`{"format": 1}`))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		if r, err := Decode(b); err == nil && !bytes.Equal(r.Encode(), b) {
			t.Fatalf("%+v has a second encoding", r)
		}
	})
}
