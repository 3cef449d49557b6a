package transaction

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
)

func testKey(n byte) identity.Key { return identity.FromSeed([identity.SeedSize]byte{n}) }

func testID(n byte) PublicKey { return PublicKey(testKey(n).ID()) }

// testTransaction has two signers, one of them read-only, and every kind of account.
func testTransaction(t *testing.T) Transaction {
	t.Helper()
	run := Program(testID(9))
	m, err := Compile(testID(1), Hash{7},
		ComputeUnitLimit(120_000), ComputeUnitPrice(10_000),
		run.Announce(testID(3), testID(2), testID(4), []string{"/ip4/127.0.0.1/tcp/1"}),
		run.Tick(testID(4), []byte("salt")),
		Transfer(testID(1), testID(3), 5))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := m.Sign(testKey(2), testKey(1))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestAccountsAreOrdered(t *testing.T) {
	m := testTransaction(t).Message
	want := []PublicKey{testID(1), testID(2), testID(3), testID(4), ComputeBudgetProgram, testID(9), SystemProgram}
	if !slices.Equal(m.Keys, want) {
		t.Fatalf("accounts %v, want %v", m.Keys, want)
	}
	if m.Signers != 2 || m.ReadOnlySigners != 1 || m.ReadOnlyUnsigned != 3 {
		t.Fatalf("header %d %d %d", m.Signers, m.ReadOnlySigners, m.ReadOnlyUnsigned)
	}
	// Announce only reads the run, and Tick writes to it. A message has one flag for both.
	for i, want := range []bool{true, false, true, true, false, false, false} {
		if m.IsWritable(i) != want {
			t.Errorf("account %d: writable %v, want %v", i, m.IsWritable(i), want)
		}
	}
	in := m.Instruction(2)
	if in.Program != testID(9) || !slices.Equal(in.Accounts, []AccountMeta{writes(testID(3)), signs(testID(2)), writes(testID(4))}) {
		t.Errorf("instruction %+v", in)
	}
}

func TestRoundTrip(t *testing.T) {
	signed := testTransaction(t)
	raw, err := signed.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	read, err := Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Verify(); err != nil {
		t.Error(err)
	}
	again, err := read.Marshal()
	if err != nil || !bytes.Equal(raw, again) {
		t.Errorf("%x became %x, %v", raw, again, err)
	}
	if read.Name() != signed.Signatures[0] {
		t.Error("with a different name")
	}
	read.Signatures[1][0] ^= 1
	if err := read.Verify(); !errors.Is(err, errSignature) {
		t.Errorf("an invalid signature: %v", err)
	}
}

func TestSignWantsEveryKey(t *testing.T) {
	m := testTransaction(t).Message
	if _, err := m.Sign(testKey(1)); !errors.Is(err, errSignature) || !strings.Contains(err.Error(), testID(2).String()) {
		t.Errorf("error %v", err)
	}
}

func TestCompileRefusesWhatIsTooLarge(t *testing.T) {
	run := Program(testID(9))
	largest := func(n int) error {
		_, err := Compile(testID(1), Hash{}, ComputeUnitLimit(1), ComputeUnitPrice(1), run.Write(testID(2), testID(1), 0, make([]byte, n)))
		return err
	}
	if err := largest(MaxRunWrite); err != nil {
		t.Error(err)
	}
	if err := largest(MaxSize); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	var accounts []AccountMeta
	for i := range 300 {
		accounts = append(accounts, reads(PublicKey{1, byte(i), byte(i >> 8)}))
	}
	if _, err := Compile(testID(1), Hash{}, Instruction{Program: testID(9), Accounts: accounts}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	if _, err := Compile(testID(1), Hash{}, Instruction{Program: testID(1)}); !errors.Is(err, ErrMalformed) {
		t.Errorf("the payer as a program: %v", err)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	signed := testTransaction(t)
	good, err := signed.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := Unmarshal(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	if _, err := Unmarshal(append(slices.Clone(good), 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("one byte too many: %v", err)
	}
	if _, err := Unmarshal(make([]byte, MaxSize+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many bytes: %v", err)
	}
	header := 1 + 2*64
	for name, change := range map[string]func(b []byte){
		"a version":              func(b []byte) { b[header] |= 0x80 },
		"no signer":              func(b []byte) { b[header] = 0 },
		"a signer less":          func(b []byte) { b[header] = 1 },
		"a read-only payer":      func(b []byte) { b[header+1] = 2 },
		"too many only read":     func(b []byte) { b[header+2] = 9 },
		"an account twice":       func(b []byte) { copy(b[header+4:], b[header+36:header+68]) },
		"more accounts than fit": func(b []byte) { b[header+3] = 100 },
	} {
		bad := slices.Clone(good)
		change(bad)
		if _, err := Unmarshal(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want error ErrMalformed", name, err)
		}
	}
}

func TestCreateWithSeedRefuses(t *testing.T) {
	if _, err := CreateWithSeed(testID(1), strings.Repeat("a", 33), testID(2)); !errors.Is(err, errSeed) {
		t.Errorf("a long seed: %v", err)
	}
	var owner PublicKey
	copy(owner[11:], derivedMarker)
	if _, err := CreateWithSeed(testID(1), "a", owner); !errors.Is(err, errSeed) {
		t.Errorf("a reserved owner: %v", err)
	}
	if _, _, err := findProgramAddress(testID(1), make([]byte, 33)); !errors.Is(err, errSeed) {
		t.Errorf("a long seed of a derived address: %v", err)
	}
	if _, _, err := findProgramAddress(testID(1), make([][]byte, 16)...); !errors.Is(err, errSeed) {
		t.Errorf("too many seeds: %v", err)
	}
}

func TestOnCurve(t *testing.T) {
	for n := range byte(50) {
		if !testID(n).onCurve() {
			t.Errorf("key %d is not on the curve", n)
		}
		address, bump, err := findProgramAddress(testID(n), []byte("seed"))
		if err != nil || address.onCurve() {
			t.Errorf("derived address %v of bump %d, %v", address, bump, err)
		}
	}
}

func TestKeysInText(t *testing.T) {
	id := testID(1)
	text, err := id.MarshalText()
	var back PublicKey
	if err != nil || back.UnmarshalText(text) != nil || back != id {
		t.Errorf("%s became %v", text, back)
	}
	signature := Signature(ed25519.Sign(testKey(1).Private(), nil))
	if got, err := ParseSignature(signature.String()); err != nil || got != signature {
		t.Errorf("signature %v, %v", got, err)
	}
	if got, err := ParseHash(Hash(id).String()); err != nil || got != Hash(id) {
		t.Errorf("hash %v, %v", got, err)
	}
	for _, text := range []string{"", "0", "1", strings.Repeat("1", 33), strings.Repeat("z", 44), strings.Repeat("1", 1_000_000)} {
		if _, err := ParsePublicKey(text); !errors.Is(err, errNotBase58) {
			t.Errorf("%.50q: error %v", text, err)
		}
	}
}

// FuzzUnmarshal checks that an accepted transaction has only one encoding.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	m, err := Compile(testID(1), Hash{7}, ComputeUnitLimit(5), Transfer(testID(1), testID(3), 5))
	if err != nil {
		f.Fatal(err)
	}
	signed, err := m.Sign(testKey(1))
	if err != nil {
		f.Fatal(err)
	}
	raw, err := signed.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		read, err := Unmarshal(b)
		if err != nil {
			return
		}
		for n := range read.Message.Instructions {
			_ = read.Message.Instruction(n)
		}
		again, err := read.Marshal()
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%x became %x, %v", b, again, err)
		}
	})
}
