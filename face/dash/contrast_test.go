package dash

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

// luminance returns the relative luminance of a colour #rrggbb, as the web accessibility guidelines
// define it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(colour[1:], 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	part := func(shift int) float64 {
		v := float64(n>>shift&0xff) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

// TestContrast checks that texts and drawings have enough contrast to their backgrounds, in both
// themes.
func TestContrast(t *testing.T) {
	sheet, err := embedded.ReadFile("assets/colours.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := [2]map[string]string{{}, {}} // light, dark
	for _, found := range regexp.MustCompile(`--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`).FindAllSubmatch(sheet, -1) {
		for i, colours := range themes {
			colours[string(found[1])] = string(found[2+i])
		}
	}
	pairs := []struct {
		front, back string
		least       float64
	}{
		{"text", "page", 7}, {"text", "card", 7}, {"text", "mark", 7}, {"muted", "card", 4.5}, {"muted", "page", 4.5}, {"muted", "mark", 4.5},
		{"link", "card", 4.5}, {"link", "page", 4.5}, {"good", "card", 4.5}, {"warn", "card", 4.5}, {"bad", "card", 4.5},
		{"good", "page", 4.5}, {"warn", "page", 4.5}, {"bad", "page", 4.5}, {"good", "goodback", 4.5}, {"bad", "badback", 4.5}, {"link", "mark", 4.5},
		{"link", "badback", 4.5}, {"link", "warnback", 4.5}, {"text", "badback", 7}, {"text", "warnback", 7}, {"onmain", "main", 4.5},
		{"curve", "card", 3}, {"curve2", "card", 3}, {"curve3", "card", 3}, {"curve4", "card", 3}, {"waits", "card", 3}, {"warmup", "card", 3}, {"trains", "card", 3},
		{"witnesses", "card", 3}, {"cools", "card", 3}, {"paused", "card", 3},
	}
	least := math.Inf(1)
	for i, theme := range []string{"light", "dark"} {
		colours := themes[i]
		for _, pair := range pairs {
			front, back := colours[pair.front], colours[pair.back]
			if front == "" || back == "" {
				t.Fatalf("colours.css has no light-dark colours --%s and --%s", pair.front, pair.back)
			}
			a, b := luminance(t, front), luminance(t, back)
			ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05)
			if ratio < pair.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want %.1f", theme, pair.front, pair.back, ratio, pair.least)
			}
			if pair.least == 4.5 {
				least = min(least, ratio)
			}
		}
	}
	t.Logf("the least contrast of text is %.2f", least)
}
