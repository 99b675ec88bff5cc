package tokenizer

import (
	"sync"
	"unicode"
)

// The tables of the Go library are those of Unicode 15.0. The library whose
// ids we give mixes several versions: its patterns follow Unicode 16, Digits
// 17, Punctuation 8 and normalization 9. Here are the differences.

// newIn16 are the code points that Unicode 15.1 and 16.0 gave to a category.
var newIn16 = map[string]string{
	"Lu": "1C89 A7CB-A7CC A7DA A7DC 10D50-10D65",
	"Ll": "1C8A A7CD A7DB 10D70-10D85",
	"Lt": "",
	"Lm": "10D4E 10D6F 16D40-16D42 16D6B-16D6C",
	"Lo": "105C0-105F3 10D4A-10D4D 10D4F 10EC2-10EC4 11380-11389 1138B 1138E " +
		"11390-113B5 113B7 113D1 113D3 11BC0-11BE0 13460-143FA 16100-1611D " +
		"16D43-16D6A 18CFF 1E5D0-1E5ED 1E5F0 2EBF0-2EE5D",
	"M": "897 10D69-10D6D 10EFC 113B8-113C0 113C2 113C5 113C7-113CA 113CC-113D0 " +
		"113D2 113E1-113E2 11F5A 1611E-1612F 1E5EE-1E5EF",
	"Nd": "10D40-10D49 116D0-116E3 11BF0-11BF9 16130-16139 16D70-16D79 1CCF0-1CCF9 " +
		"1E5F1-1E5FA",
	"Nl": "",
	"No": "",
	"P":  "1B4E-1B4F 1B7F 10D6E 113D4-113D5 113D7-113D8 11BE1 16D6D-16D6F 1E5FF",
	"S": "2427-2429 2FFC-2FFF 31E4-31E5 31EF 10D8E-10D8F 1CC00-1CCEF 1CD00-1CEB3 " +
		"1F8B2-1F8BB 1F8C0-1F8C1 1FA89 1FA8F 1FABE 1FAC6 1FADC 1FADF 1FAE9 1FBCB-1FBEF",
	"Z": "",
}

// newDigits are the numbers that Unicode 17 has and 16 has not.
const newDigits = "11DE0-11DE9 16FF4-16FF6"

// oldPunctuation was P in Unicode 8 and is not in 15; newPunctuation is the reverse.
const (
	oldPunctuation = "166D 111C9"
	newPunctuation = "61D 9FD A76 C77 C84 1B7D-1B7E 2E43-2E4F 2E52-2E5D 10EAD 10F55-10F59 " +
		"10F86-10F89 1144B-1144F 1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946 119E2 " +
		"11A3F-11A46 11A9A-11A9C 11A9E-11AA2 11B00-11B09 11C41-11C45 11C70-11C71 11EF7-11EF8 " +
		"11F43-11F4F 11FFF 12FF1-12FF2 16E97-16E9A 16FE2 1E95E-1E95F"
)

// inert are the code points that Unicode 9 did not know, on which normalization by later tables
// acts: the first list in every form, the second, of compatibility characters, in NFKC and NFKD.
const (
	newMarks = "7FD 898-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C " +
		"10D24-10D27 10EAB-10EAC 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 1145E " +
		"11839-1183A 11938 1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42 11D44-11D45 11D97 " +
		"11F41-11F42 16FF0-16FF1 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF"
	newCompatibility = "32FF A7F2-A7F4 AB69 10781-10785 10787-107B0 107B2-107BA 1E030-1E06D " +
		"1F16C 1FBF0-1FBF9"
)

// categories holds what \p{...} may name.
var categories = sync.OnceValue(func() map[string]runeSet {
	sets := map[string]runeSet{}
	for name, added := range newIn16 {
		sets[name] = union(tableSet(unicode.Categories[name]), parseSet(added))
	}
	sets["L"] = union(sets["Lu"], sets["Ll"], sets["Lt"], sets["Lm"], sets["Lo"])
	sets["N"] = union(sets["Nd"], sets["Nl"], sets["No"])
	return sets
})

// whiteSpace is \s: the 25 characters with the White_Space property.
var whiteSpace = sync.OnceValue(func() runeSet { return tableSet(unicode.White_Space) })

// digits is what the pre-tokenizer Digits takes for one.
var digits = sync.OnceValue(func() runeSet {
	return union(categories()["N"], parseSet(newDigits))
})

// punctuation is what the pre-tokenizer Punctuation takes for one.
var punctuation = sync.OnceValue(func() runeSet {
	later := parseSet(newPunctuation).complement()
	known := intersection(tableSet(unicode.P), later)
	ascii := runeSet{{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}
	return union(known, parseSet(oldPunctuation), ascii)
})

// wordChars is what the option single_word of an added token takes for part of a word.
var wordChars = sync.OnceValue(func() runeSet {
	c := categories()
	joiners := runeSet{{0x200C, 0x200D}}
	return union(c["L"], c["M"], c["Nd"], c["Nl"], joiners,
		tableSet(unicode.Other_Alphabetic), tableSet(unicode.Pc))
})

// inert returns the code points that normalization leaves alone.
var inert = sync.OnceValue(func() runeSet { return parseSet(newMarks) })

var inertCompatibility = sync.OnceValue(func() runeSet {
	return union(inert(), parseSet(newCompatibility))
})
