package paths

import "testing"

func TestState(t *testing.T) {
	for _, test := range []struct {
		environment map[string]string
		want        string
	}{
		{map[string]string{"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/psyche"},
		{map[string]string{"XDG_STATE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/state/psyche"},
		{map[string]string{"HOME": "/home/me"}, "/home/me/.local/state/psyche"},
		{map[string]string{"HOME": "me"}, ""},
		{nil, ""},
	} {
		got, err := State(func(name string) (string, bool) { value, ok := test.environment[name]; return value, ok })
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%v: got %q, %v; want %q and (err == nil) == (test.want != \"\")", test.environment, got, err, test.want)
		}
	}
}
