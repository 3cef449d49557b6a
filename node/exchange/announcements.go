package exchange

import (
	"encoding/binary"
	"fmt"
)

// encodeAnnouncements encodes signed announcements, up to the limits.
func encodeAnnouncements(raws [][]byte) []byte {
	raws = raws[:min(len(raws), maxAnnouncements)]
	size := 2
	for _, raw := range raws {
		size += 2 + len(raw)
	}
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, size), uint16(len(raws)))
	for _, raw := range raws {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(raw)))
		b = append(b, raw...)
	}
	return b
}

// decodeAnnouncements decodes the output of encodeAnnouncements, but not the announcements
// themselves.
func decodeAnnouncements(b []byte) ([][]byte, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: %d bytes of announcements", errMalformed, len(b))
	}
	count := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if count > maxAnnouncements {
		return nil, fmt.Errorf("%w: %d announcements, at most %d", errMalformed, count, maxAnnouncements)
	}
	raws := make([][]byte, 0, min(count, len(b)/2))
	for i := range count {
		if len(b) < 2 {
			return nil, fmt.Errorf("%w: announcement %d of %d is missing", errMalformed, i, count)
		}
		size := int(binary.LittleEndian.Uint16(b))
		b = b[2:]
		if size > MaxAnnouncementSize || size > len(b) {
			return nil, fmt.Errorf("%w: announcement %d claims %d bytes", errMalformed, i, size)
		}
		raws = append(raws, b[:size:size])
		b = b[size:]
	}
	if len(b) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the announcements", errMalformed, len(b))
	}
	return raws, nil
}
