package layout

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/core/coordinator"
)

func TestDraft(t *testing.T) {
	for _, d := range []Draft{
		{},
		{Permissioned: true, JoinAuthority: [32]byte{1, 2}, Name: "N", Description: "D"},
		{Name: strings.Repeat("n", maxDraftName), Description: strings.Repeat("d", maxDraftDescription)},
	} {
		b, err := AppendDraft([]byte{7}, d)
		if err != nil || len(b) != 1+DraftSize {
			t.Fatalf("%+v: %d bytes, %v", d, len(b), err)
		}
		if got, found, err := ReadDraft(b[1:]); got != d || !found || err != nil {
			t.Errorf("%+v: read %+v, %t, %v", d, got, found, err)
		}
		for i := range DraftSize - len(draftMagic) {
			damaged := bytes.Clone(b[1:])
			damaged[i] ^= 1
			if _, found, err := ReadDraft(damaged); !found || !errors.Is(err, ErrDraft) {
				t.Fatalf("byte %d changed: %t, %v", i, found, err)
			}
		}
	}
	if _, found, err := ReadDraft(make([]byte, DraftSize)); found || err != nil {
		t.Errorf("zeros: %t, %v", found, err)
	}
	if _, err := AppendDraft(nil, Draft{Name: strings.Repeat("n", maxDraftName+1)}); err == nil {
		t.Error("a name that does not fit is accepted")
	}
}

// TestGenesisLeavesDraftsMark checks that an unfinished genesis, however long, does not overwrite
// the mark of a draft.
func TestGenesisLeavesDraftsMark(t *testing.T) {
	g := coordinator.Genesis{RunID: strings.Repeat("r", MaxRunIDLength)}
	g.Model.Definition = make([]byte, coordinator.MaxDefinitionSize)
	g.Model.Checkpoint.Repo = strings.Repeat("r", coordinator.MaxRepoLength)
	if longest := len(AppendGenesis(nil, g)); longest > StageSize-len(draftMagic) {
		t.Errorf("a genesis has up to %d bytes, but the mark of a draft is at %d", longest, StageSize-len(draftMagic))
	}
}

// FuzzReadDraft checks that arbitrary bytes cause no panic, and that an accepted draft has only one
// encoding.
func FuzzReadDraft(f *testing.F) {
	for _, d := range []Draft{{}, {Permissioned: true, Name: "N", Description: "D"}} {
		b, err := AppendDraft(nil, d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:draftBody])
	}
	f.Add(bytes.Repeat([]byte{255}, draftBody))
	fuzztest.Run(f, func(t *testing.T, body []byte) {
		if len(body) != draftBody {
			return
		}
		sum := sha256.Sum256(body)
		b := append(append(bytes.Clone(body), sum[:draftCheck]...), draftMagic...)
		d, found, err := ReadDraft(b)
		if err != nil || !found {
			return
		}
		again, err := AppendDraft(nil, d)
		if err != nil {
			t.Fatal(err)
		}
		if other, _, err := ReadDraft(again); err != nil || other != d {
			t.Fatalf("%+v became %+v, %v", d, other, err)
		}
	})
}
