package receipt

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"strings"
	"unicode"
)

const maxBadgeText = 36 // characters of a line of a badge

// Badge returns the receipt as a picture in SVG, which can be shared: the member's name, its counted
// rounds and its share, the run, and the hash of the log's entry at which every reader can verify the
// numbers. An empty name means the key. entry is the number of that entry, which depends on the kind of log.
func (r Receipt) Badge(name string, entry uint64) []byte {
	name = shown(cmp.Or(name, r.Member[:min(8, len(r.Member))]))
	run := shown(r.RunID)
	hash := r.Head[:min(16, len(r.Head))]
	rounds := fmt.Sprintf("%d counted rounds", r.Rounds)
	if r.Rounds == 1 {
		rounds = "1 counted round"
	}
	share := fmt.Sprintf("%.1f %% of the counted tokens", 100*r.Share())
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="480" height="150" viewBox="0 0 480 150" role="img" aria-labelledby="t d">
<title id="t">%[1]s trained %[2]s</title>
<desc id="d">%[3]s, %[4]s. Log entry %[5]d has the hash %[6]s. The program psyche verified the numbers from the log.</desc>
<rect width="480" height="150" rx="12" fill="#10243e"/>
<rect x="0" y="24" width="6" height="102" fill="#7fd1ff"/>
<g font-family="system-ui, sans-serif" fill="#ffffff">
<text x="24" y="42" font-size="22" font-weight="700">%[1]s</text>
<text x="24" y="66" font-size="14" fill="#b9cbe0">trained %[2]s</text>
<text x="24" y="98" font-size="18" fill="#7fd1ff">%[3]s</text>
<text x="24" y="118" font-size="14">%[4]s</text>
<text x="24" y="138" font-size="11" fill="#b9cbe0" font-family="monospace">verified: log entry %[5]d, %[6]s</text>
</g>
</svg>
`, name, run, rounds, share, entry, html.EscapeString(hash))
	return b.Bytes()
}

// shown returns at most maxBadgeText printable characters of a text, escaped for XML.
func shown(text string) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) {
			return ' '
		}
		return r
	}, text))
	if len(runes) > maxBadgeText {
		runes = append(runes[:maxBadgeText-1], '…')
	}
	return html.EscapeString(string(runes))
}
