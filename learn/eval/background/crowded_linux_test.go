package background

import "testing"

func TestRunnable(t *testing.T) {
	for text, want := range map[string]int{
		"4.54 5.23 4.97 4/98 3356\n": 4, "0.00 0.01 0.05 12/1234 1\n": 12,
		"": 0, "0.1 0.2 0.3": 0, "0.1 0.2 0.3 x/2 7": 0, "0.1 0.2 0.3 5": 5,
	} {
		if got := runnable([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	Crowded() // reads the system's value
}
