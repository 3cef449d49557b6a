package program

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

type named struct {
	Name          string
	Discriminator []number
}

// number is a byte of a discriminator. A []byte would be text in JSON.
type number uint16

type field struct {
	Name string
	Type any
}

type idl struct {
	Instructions []struct {
		named
		Accounts []struct {
			Name             string
			Writable, Signer bool
		}
	}
	Accounts []named
	Errors   []struct {
		Code      uint32
		Name, Msg string
	}
	Types []struct {
		Name string
		Type struct{ Fields []json.RawMessage }
	}
}

func readIDL(t *testing.T) idl {
	t.Helper()
	b, err := os.ReadFile("idl.json")
	if err != nil {
		t.Fatal(err)
	}
	var d idl
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestIDL checks that the description of the program agrees with the Go code.
func TestIDL(t *testing.T) {
	d := readIDL(t)
	numbers := map[string]int{
		"init": transaction.RunInit, "write": transaction.RunWrite, "genesis": transaction.RunGenesis, "act": transaction.RunAct,
		"tick": transaction.RunTick, "free": transaction.RunFree, "announce": transaction.RunAnnounce, "forget": transaction.RunForget,
		"migrate": transaction.RunMigrate, "grant": transaction.RunGrant, "delegate": transaction.RunDelegate,
	}
	if len(d.Instructions) != len(numbers) {
		t.Errorf("%d instructions, want %d", len(d.Instructions), len(numbers))
	}
	for _, i := range d.Instructions {
		if n := numbers[i.Name]; !slices.Equal(i.Discriminator, []number{number(n)}) {
			t.Errorf("%s: %v, want %d", i.Name, i.Discriminator, n)
		}
		if !i.Accounts[0].Writable || len(i.Accounts) > 1 != (i.Name != "tick") || len(i.Accounts) > 1 && !i.Accounts[1].Signer {
			t.Errorf("%s: accounts %+v", i.Name, i.Accounts)
		}
	}
	for _, e := range d.Errors {
		if want := CustomError(e.Code).Error(); e.Msg != want {
			t.Errorf("error %d: %q, want %q", e.Code, e.Msg, want)
		}
	}
	known := 0
	for code := range uint32(1000) {
		if coordinator.Code(code).Valid() && code < 256 || code >= uint32(ErrOtherVersion) && code <= uint32(ErrGrant) {
			known++
		}
	}
	if len(d.Errors) != known {
		t.Errorf("%d errors, want %d", len(d.Errors), known)
	}
	for _, a := range d.Accounts {
		magic := map[string]string{"Run": layout.RunMagic, "Peer": layout.PeerMagic, "Grant": layout.GrantMagic}[a.Name]
		if string(bytesOf(a.Discriminator)) != magic {
			t.Errorf("account %s: %q, want %q", a.Name, bytesOf(a.Discriminator), magic)
		}
	}
}

func bytesOf(numbers []number) []byte {
	var b []byte
	for _, n := range numbers {
		b = append(b, byte(n))
	}
	return b
}

// TestSizesOfIDL checks that structures have the same sizes as in Go.
func TestSizesOfIDL(t *testing.T) {
	sizes := map[string]int{"Run": layout.StateOffset - 8, "Peer": layout.PeerSize - 8, "Grant": layout.GrantSize(0) - 8, "Change": event.Size}
	for _, x := range readIDL(t).Types {
		want, fixed := sizes[x.Name]
		if !fixed {
			continue
		}
		size := 0
		for _, raw := range x.Type.Fields {
			var f field
			if err := json.Unmarshal(raw, &f); err != nil {
				t.Fatal(err)
			}
			size += sizeOf(t, f.Type)
		}
		if size != want {
			t.Errorf("%s: fields of %d bytes, want %d", x.Name, size, want)
		}
		delete(sizes, x.Name)
	}
	if len(sizes) > 0 {
		t.Errorf("no types %v", sizes)
	}
}

func sizeOf(t *testing.T, kind any) int {
	t.Helper()
	if m, ok := kind.(map[string]any); ok {
		array := m["array"].([]any)
		return int(array[1].(float64))
	}
	size, ok := map[any]int{"u8": 1, "u32": 4, "u64": 8, "pubkey": 32}[kind]
	if !ok {
		t.Errorf("type %v", kind)
	}
	return size
}

// TestResults checks that every result has a name and a text.
func TestResults(t *testing.T) {
	for b, name := range builtinNames {
		if again, ok := BuiltinError(name); !ok || again != b || builtinTexts[b] == "" {
			t.Errorf("%d: got %q, %q; want ok and %q and builtinTexts[b] != \"\"", b, name, builtinTexts[b], b)
		}
	}
	if _, ok := BuiltinError("Custom"); ok {
		t.Error("Custom should be an error of every program")
	}
	if err := CustomError(uint32(coordinator.ErrFull)); !errors.Is(err, coordinator.ErrFull) {
		t.Error(err)
	}
	for _, code := range []uint32{0, 19, 255, 259, 256 + uint32(coordinator.ErrFull)} {
		if err := CustomError(code); !errors.Is(err, Code(code)) || err.Error() == "" {
			t.Errorf("%d: got %v; want error Code(code) and err.Error() != \"\"", code, err)
		}
	}
}
