package identity

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mr-tron/base58"
)

func TestParseKeypair(t *testing.T) {
	key := FromSeed([SeedSize]byte{7})
	long := base58.Encode(key.Private())
	for _, text := range []string{long, " " + long + "\n", "\ufeff" + long + "\r\n", string(key.appendJSON(nil)), "\ufeff " + string(key.appendJSON(nil)) + "\r\n\r\n"} {
		if got, err := parseKeypair(text); err != nil || got.ID() != key.ID() {
			t.Errorf("got %v; want nil error and got.ID() == key.ID()", err)
		}
	}
	damaged := append([]byte(nil), key.Private()...)
	damaged[SeedSize]++
	for _, text := range []string{"", "0", long[1:], base58.Encode(damaged), key.ID().String(), "[1,2", "[" + strings.Repeat("1", SeedSize-2) + "]", strings.Repeat("1", maxKeyFileSize+1)} {
		_, err := parseKeypair(text)
		if !errors.Is(err, ErrInvalidKey) || len(text) > 8 && strings.Contains(err.Error(), text[:8]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestWalletFromEnvironment checks the order in which the variables apply, and that an error names
// the invalid variable.
func TestWalletFromEnvironment(t *testing.T) {
	named, wallet, own := FromSeed([SeedSize]byte{1}), FromSeed([SeedSize]byte{2}), testKey(t)
	path := filepath.Join(t.TempDir(), "wallet.json")
	if err := SaveKeyFile(path, named); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{}
	from := func() (Key, bool, error) {
		return WalletFromEnvironment(func(name string) (string, bool) { value, set := environment[name]; return value, set })
	}
	environment[walletVariable] = ""
	if _, found, err := from(); found || err != nil {
		t.Errorf("nothing is set: %v, %v", found, err)
	}
	for _, set := range []struct {
		name, value string
		want        Key
	}{{"WALLET_PATH", path, named}, {walletVariable, base58.Encode(wallet.Private()) + "\r\n", wallet}, {SecretKeyVariable, testSecret + "\n", own}} {
		environment[set.name] = set.value
		if key, found, err := from(); !found || err != nil || key.ID() != set.want.ID() {
			t.Errorf("%s: got %v, %v; want found and nil error and key.ID() == set.want.ID()", set.name, found, err)
		}
	}
	for _, name := range WalletVariables() {
		clear(environment)
		environment[name] = "secret1234"
		if _, found, err := from(); !found || err == nil || !strings.Contains(err.Error(), name+": ") || name != "WALLET_PATH" && name != "WALLET_PRIVATE_KEY_PATH" && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}
