package config

import (
	"os"
	"strings"
	"testing"
)

func TestNameOf(t *testing.T) {
	text, err := os.ReadFile("testdata/server.toml")
	if err != nil {
		t.Fatal(err)
	}
	described := strings.Repeat("d", MaxDescription)
	run, err := ParseState("s.toml", []byte("name = \"A <run> & more\"\ndescription = \""+described+"\"\n"+string(text)))
	if err != nil {
		t.Fatal(err)
	}
	definition, err := EncodeModel(run.Model)
	if err != nil {
		t.Fatal(err)
	}
	if name, about := NameOf(definition); name != "A <run> & more" || about != described {
		t.Errorf("got %q, %q; want \"A <run> & more\" and %q", name, about, described)
	}
	if decoded, err := DecodeModel(definition); err != nil || decoded.Name != run.Model.Name || decoded.Description != described {
		t.Errorf("decoded %+v, %v", decoded, err)
	}
	// A main authority can write any bytes into a definition.
	for _, bad := range []string{"", "x", "[]", `{"Name":7}`, `{"Name":"\u001b[2J","Description":"\u202e"}`, `{"Name":"` + strings.Repeat("n", MaxName+1) + `","Description":"` + described + `d"}`} {
		if name, about := NameOf([]byte(bad)); name != "" || about != "" {
			t.Errorf("%s: got %q, %q; want \"\" and \"\"", bad, name, about)
		}
	}
}
