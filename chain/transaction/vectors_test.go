package transaction

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
)

// vectors returns the output of testdata/generate, which uses an independent implementation.
func vectors(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = value
	}
	return all
}

func TestAddressesAreThoseOfAnotherImplementation(t *testing.T) {
	want := vectors(t)
	for n := byte(1); n <= 8; n++ {
		seeded, err := CreateWithSeed(testID(n), fmt.Sprintf("run %d", n), testID(9))
		if err != nil {
			t.Fatal(err)
		}
		derived, bump, err := findProgramAddress(testID(9), []byte{n}, []byte("seed"))
		if err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]string{
			"seeded": hex.EncodeToString(seeded[:]), "derived": hex.EncodeToString(append(derived[:], bump)),
			"curve": fmt.Sprint(seeded.onCurve()),
		} {
			if name := fmt.Sprintf("%s-%d", name, n); got != want[name] {
				t.Errorf("%s: %s, want %s", name, got, want[name])
			}
		}
	}
	if data, err := ProgramData(testID(9)); err != nil || hex.EncodeToString(data[:]) != want["program-data"] {
		t.Errorf("program data %x, %v, want %s", data, err, want["program-data"])
	}
}

func TestTransactionsAreThoseOfAnotherImplementation(t *testing.T) {
	large := make([]byte, 900)
	for i := range large {
		large[i] = byte(i)
	}
	call := func(data []byte, accounts ...AccountMeta) Instruction {
		return Instruction{Program: testID(9), Accounts: accounts, Data: data}
	}
	withSeed := func(base byte) Instruction {
		in, err := CreateAccountWithSeed(testID(1), testID(base), "run", 6, 7, testID(9))
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	allocate := func(base byte) Instruction {
		in, err := AllocateWithSeed(testID(base), "run", 300, testID(9))
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	run := Program(testID(9))
	want := vectors(t)
	for name, instructions := range map[string][]Instruction{
		"transfer":                      {Transfer(testID(1), testID(2), 5)},
		"create":                        {ComputeUnitLimit(120_000), CreateAccount(testID(1), testID(2), 6, 7, testID(9))},
		"create-with-seed":              {withSeed(1), ComputeUnitPrice(1 << 40)},
		"create-with-seed-of-another":   {withSeed(2)},
		"allocate-with-seed":            {allocate(1)},
		"allocate-with-seed-of-another": {allocate(2)},
		"assign":                        {Assign(testID(2), testID(9))},
		"allocate":                      {Allocate(testID(2), 300)},
		"act":                           {ComputeUnitLimit(120_000), ComputeUnitPrice(1 << 40), run.Act(testID(4), testID(1), 1, []byte{1, 2, 3})},
		"act-of-another":                {call(large, writes(testID(4)), signs(testID(3))), run.Tick(testID(4), nil)},
		"announce":                      {run.Announce(testID(3), testID(2), testID(4), nil), run.Tick(testID(4), []byte("s"))},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Compile(testID(1), Hash(testID(8)), instructions...)
			if err != nil {
				t.Fatal(err)
			}
			var keys []identity.Key
			for n := range byte(10) {
				keys = append(keys, testKey(n))
			}
			signed, err := m.Sign(keys...)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := signed.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			expected, err := hex.DecodeString(want[name])
			if err != nil || !bytes.Equal(raw, expected) {
				t.Fatalf("%x, want %x (%v)", raw, expected, err)
			}
			read, err := Unmarshal(expected)
			if err != nil {
				t.Fatal(err)
			}
			if err := read.Verify(); err != nil {
				t.Error(err)
			}
		})
	}
}
