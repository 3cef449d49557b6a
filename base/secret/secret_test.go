package secret

import "testing"

func TestTrim(t *testing.T) {
	for given, want := range map[string]string{
		"key": "key", "key\n": "key", "key\r\n": "key", " \tkey \n\n": "key", "\ufeffkey\r\n": "key", "two words\n": "two words", "\n": "", "": "", "\ufeff": "", "key\u00a0\n": "key", "\n\nkey": "key", "\ufeff key": "key", "key\v\f": "key",
	} {
		if got := Trim(given); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
