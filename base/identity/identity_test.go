package identity

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestVerifyBindsDomainAndMessage(t *testing.T) {
	key := testKey(t)
	signature := key.Sign("domain", []byte("message"))
	if !Verify(key.ID(), "domain", []byte("message"), signature) {
		t.Fatal("the signature is invalid")
	}
	if Verify(key.ID(), "domai", []byte("nmessage"), signature) || Verify(key.ID(), "other", []byte("message"), signature) ||
		Verify(key.ID(), "domain", []byte("other"), signature) {
		t.Fatal("the signature is valid for a different domain or message")
	}
}

// TestVerifyRefusesKeysOfSmallOrder checks that Verify rejects keys of small order. Such a key has at
// most eight multiples, so an attacker without the secret key can guess a signature that is valid for
// any message.
func TestVerifyRefusesKeysOfSmallOrder(t *testing.T) {
	for _, id := range smallOrder {
		for _, sign := range []byte{0, 0x80} {
			id := id
			id[IDSize-1] |= sign
			for _, guess := range smallOrder {
				var signature [SignatureSize]byte
				copy(signature[:], guess[:])
				for message := range byte(16) {
					if Verify(id, "domain", []byte{message}, signature) {
						t.Fatalf("a signature of %x is valid", id)
					}
				}
			}
		}
	}
}

func TestParseID(t *testing.T) {
	id := testKey(t).ID()
	if got, err := ParseID(id.String()); err != nil || got != id {
		t.Fatalf("got %v, %v; want nil error and %v", got, err, id)
	}
	for _, text := range []string{"", "1", id.String() + "1", "0OIl"} {
		if _, err := ParseID(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestIDInJSON(t *testing.T) {
	id := FromSeed([SeedSize]byte{1}).ID()
	text, err := json.Marshal(id)
	if err != nil || string(text) != `"`+id.String()+`"` {
		t.Fatalf("got %s, %v; want nil error and string(text) == `\"` + id.String() + `\"`", text, err)
	}
	var back ID
	if err := json.Unmarshal(text, &back); err != nil || back != id {
		t.Errorf("%s became %v, %v", text, back, err)
	}
	if err := json.Unmarshal([]byte(`"0"`), &back); !errors.Is(err, ErrInvalidKey) {
		t.Errorf("got %v; want error ErrInvalidKey", err)
	}
}
