package main

import (
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// matchTimeout bounds one match, because the engine backtracks.
const matchTimeout = 5 * time.Second

// rule is one pattern. Words are lower-case substrings; a sentence without any of them cannot match.
type rule struct {
	name  string
	words []string
	re    *regexp2.Regexp
}

// find returns the byte offset of the first match in sentence, or -1. Low is sentence in lower case.
func (r *rule) find(sentence, low string) int {
	possible := len(r.words) == 0
	for _, w := range r.words {
		possible = possible || strings.Contains(low, w)
	}
	if !possible {
		return -1
	}
	m, err := r.re.FindStringMatch(sentence)
	if err != nil || m == nil {
		return -1
	}
	at, _ := m.ByteRange()
	return at
}

// Parts of several patterns.
const (
	toBe        = `(?:is|are|was|were|be|been|being)`
	indefinites = `(?:nobody|somebody|everybody|anybody)`
)

// rules are the patterns for every kind of prose. The guide in CONTRIBUTING.md has an example for each.
var rules = []rule{
	// A relative clause in place of a noun.
	pattern("what-noun", "what", `(?<!matter )(?<!based )\b(?:of|from|by|for|to|on|than|beside|with|into|and|or|but|as|after|at) what\b`+
		`(?! if\b| would| to\b| kind| (?:is|does|do|are) not\b)|^what (?!if\b|to\b|about\b|happens\b)[^?]*$`+
		`|\b(?:`+toBe+`|has|have|returns?|says?|reads?|keeps?|takes?|holds?|does|do|gives?|bounds?|makes?|shows?|sends?|writes?|counts?|leaves?|gets?|of all) what (?!to\b|happens)\w+`),
	pattern("who-noun", "who", `^who(?!ever|se|m)\b[^?]*$|(?:[,;:] |\b(?:of|for|from|to|by|with|and|or|than|when|so|but|as|if|where|say|says|told|knows?|that|only|lets?|asks?|gives?|shows?|keeps?|puts?|because) )who\b(?!,)`+
		`|\bwhom\b|\bwho(?:so)?ever\b|\b(?:`+toBe+`|of|is|to|say|says) whose\b|\bthose who(?:m|se)?\b`),
	pattern("which-noun", "which whose", `[,;:] which,|\b(?:of|by|to|about|without|beside|against|behind|beyond|below|among) (?:which|whose)\b`),
	pattern("where-if", "where", `^where\b(?! to\b)[^?]*$|[;,] where (?:`+indefinites+`|there `+toBe+`|no\b|both\b|none\b|others?\b|a run\b|only\b)`),

	// A pronoun without an antecedent.
	pattern("that-of", "those of", `\b`+toBe+` (?:that|those) of\b|\bthose (?:that|which|of)\b|\b(?:than|by) those\b|\b`+toBe+` those\b`+
		`|\b(?<!made )(?<!free )(?<!aware )(?<!consist )`+toBe+` of (?!course\b|type|length|size|interest|the form|use\b|little|great|no use)(?:an?|the|its|his|their|all|every|each|no|others?|one|both|which|this|what|how|so|two|three|\w+s)\b`),
	pattern("others", "others", `\b(?:of|by|to|from|for|with|than|what|where|when|that|if|like|as|and|or|lets?|unlike|before|`+toBe+`) others\b|^others \w|\bothers (?:than|that|may|must|can|see|know|have|`+toBe+`)\b`),
	pattern("person", "body people", `\b`+indefinites+`\b|\bpeople (?:are|is) `),
	pattern("another-one", "one both", `\b(?:another|own|a (?:second|third|small|slow|large|longer|free|full)|such a) ones?\b(?! (?:of the|byte|second|or|day|more|hour))|\bones? (?:that|who)\b|\bof both\b(?! \w+s\b)`),
	pattern("own", "own of", `\b(?:the|an?) own\b|\bof (?:its|their|his|her|your|one's|a) own\b|\bof (?:ours|theirs|yours|mine)\b`),

	// Idioms and prepositions of another language.
	pattern("beside", "beside", `\bbesides?\b`),
	pattern("archaic", "", `\b(?:anew|afresh|hitherto|whence|thence|therein|thereof|wherein|whereof|whereby|lest|erstwhile|for ever|in vain|be it|for want of|all the same`+
		`|at hand|a good while|come to nothing|comes? true|came true|good-?bye|foresee[ns]?|foresaw|foretold|nought|of itself|at least so|gives? way|given way|gave way`+
		`|alike|as it (?:is|was|stands)(?= *[,.;)]|$)|as they are(?= *[,.;)]|$)|let be|its dice|draws? lots)\b`),
	pattern("go-on", "on up again begin", `\b(?:goes|go|went|going|gone) on\b(?! to\b)|\btak(?:es|ing|en) (?:it |them )?up\b|\bto begin with\b|\b(?:do(?:es|ne)?|ma(?:de|kes?)) (?:it |them )?again\b`),
	pattern("but-except", "but", `\b(?:all|nothing|`+indefinites+`|none|no one|no other|anything|everything|nowhere) but\b|\bbut for\b`),
	pattern("is-no", "no", `(?<!there )\b(?:`+toBe+`|takes?|gets?|finds?|knows?|sees?|says?|wants?|gives?) (?:none\b|nothing\b|no (?!longer\b|need\b|more\b|effect\b|way\b|guarantee|point\b|leader|op\b|problem|reason|arg|param|input)\w+)`),
	pattern("so-many", "so as", `\bso (?:many|much|few|long|large|small|short|old|late) (?!as\b|that\b|to\b|we\b|you\b)\w+(?![^.;]*\b(?:that|as)\b)|\bso (?:long|many|much|few)[.,;]|\bas (?:many|much|few)(?: \w+){0,2}(?! as)[.,;]`),
	pattern("as-verb", "", `, as (?:is|are|do|does|did|was|were|has|have|had) \w+`),

	// Things that speak, and passive verbs before a preposition.
	pattern("says", "say said tell told speak word", `\b(?:says|said)\b(?! hello)|\bsay (?:that|which|what|how|who|whether|so|it|of|the|no)\b|\b(?:tells|told)\b(?! apart| the | you| us)|\btell of\b|\bspeaks? of\b|\bword of\b|\bErr\w+ says\b`),
	pattern("passive-prep", "", `\b`+toBe+` (?:not |never |no longer |still |also |then |only )?(?:(?:asked|waited|looked|gone|cared|wished) for(?! an? )|(?:looked|pointed) at|(?:told|known|heard|read|kept|left|made|had|shown|taken|asked|thought) of|(?:lied|agreed|spoken|heard|told) about`+
		`|(?:held|spoken) against|taken (?:for|back|part)|(?:gone|waited|counted|taken) on|gone|begun with|done (?:again|with)|let (?:in|go)|given back|let\b|put (?:down|beside|away))\b`),
	pattern("is-had", "has had not there", `\bhas it[,.;]|\b`+toBe+` had\b|\bit `+toBe+` not known\b|\b(?<!sure )(?<!if )there (?:is|are)(?=[.,;)]|$)`),
}

// subjectRules are further patterns, for subjects of commits.
var subjectRules = []rule{
	exact("subject-long", `^.{73,}`),
	exact("subject-glued", `^.{30,}; |\. [A-Z]`),
}

// pattern returns a rule that ignores case.
func pattern(name, words, expression string) rule {
	r := exact(name, `(?i)`+expression)
	r.words = strings.Fields(words)
	return r
}

func exact(name, expression string) rule {
	re := regexp2.MustCompile(expression)
	re.MatchTimeout = matchTimeout
	return rule{name: name, re: re}
}
