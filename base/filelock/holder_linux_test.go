package filelock

import "testing"

func TestHolderIn(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF
2: FLOCK  ADVISORY  WRITE 12 08:01:78 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF
3: FLOCK  ADVISORY  WRITE 0 08:01:79 0 EOF
4: FLOCK  ADVISORY  WRITE x 08:01:80 0 EOF
5: FLOCK
6: FLOCK  ADVISORY  WRITE 14 08:01:77 0 EOF
`
	for place, want := range map[string]int{"08:01:77": 14, "08:01:78": 12, "08:01:79": 0, "08:01:80": 0, "08:01:81": 0} {
		if got := holderIn(locks, place); got != want {
			t.Errorf("%s: process %d, want %d", place, got, want)
		}
	}
}
