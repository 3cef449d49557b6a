package exchange

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/record/wire"
)

// TestAnnouncementsGolden checks that the bytes of the round protocol do not change.
func TestAnnouncementsGolden(t *testing.T) {
	const want = "0300" + "0300" + "616263" + "0000" + "0100" + "64"
	packed := encodeAnnouncements([][]byte{[]byte("abc"), {}, []byte("d")})
	if got := hex.EncodeToString(packed); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	raws, err := decodeAnnouncements(packed)
	if err != nil || len(raws) != 3 || string(raws[0]) != "abc" || len(raws[1]) != 0 || string(raws[2]) != "d" {
		t.Errorf("got %q, %v; want nil error and len(raws) == 3 and string(raws[0]) == \"abc\" and len(raws[1]) == 0 and string(raws[2]) == \"d\"", raws, err)
	}
}

// TestAnnouncementsFit checks that the largest answer fits within the limit of the request.
func TestAnnouncementsFit(t *testing.T) {
	if wire.MaxAnnouncementSize > MaxAnnouncementSize {
		t.Fatalf("an announcement may have %d bytes, the protocol allows %d", wire.MaxAnnouncementSize, MaxAnnouncementSize)
	}
	full := make([][]byte, maxAnnouncements+10)
	for i := range full {
		full[i] = make([]byte, MaxAnnouncementSize)
	}
	packed := encodeAnnouncements(full)
	if len(packed) != maxRoundResponse {
		t.Errorf("%d bytes, bound %d", len(packed), maxRoundResponse)
	}
	if raws, err := decodeAnnouncements(packed); err != nil || len(raws) != maxAnnouncements {
		t.Errorf("%d announcements, %v", len(raws), err)
	}
}

func TestAnnouncementsMalformed(t *testing.T) {
	for name, text := range map[string]string{
		"empty":               "",
		"half a count":        "01",
		"count too high":      "ffff",
		"missing":             "0100",
		"size beyond the end": "01000500616263",
		"size beyond bounds":  "0100ffff" + hex.EncodeToString(make([]byte, 1<<16)),
		"bytes left":          "010001006162",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeAnnouncements(b); !errors.Is(err, errMalformed) {
				t.Errorf("got %v; want error errMalformed", err)
			}
		})
	}
}

func FuzzDecodeAnnouncements(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeAnnouncements(nil))
	f.Add(encodeAnnouncements([][]byte{[]byte("abc"), {}, []byte("d")}))
	f.Add([]byte{1, 0, 0xff, 0xff})
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		raws, err := decodeAnnouncements(b)
		if err == nil && !bytes.Equal(encodeAnnouncements(raws), b) {
			t.Error("two encodings of one value")
		}
	})
}
