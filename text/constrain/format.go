package constrain

import "strings"

// Expressions of formats. They have fewer texts than the format where its rules are no regular
// ones, or where validators differ.
const (
	year      = `([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])`
	leapYear  = `([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)`
	date      = `(` + year + `-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|` + leapYear + `-02-29)`
	clock     = `([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])`
	hours     = `([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)`
	days      = `([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)`
	host      = `[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)*`
	atom      = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	octet     = `(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	ipv4      = `(` + octet + `\.){3}` + octet
	group     = `[0-9A-Fa-f]{1,4}`
	pchar     = `([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
	tail      = `(\?(` + pchar + `|[/?])*)?(#(` + pchar + `|[/?])*)?`
	authority = `//([A-Za-z0-9._~!$&'()*+,;=:-]*@)?[A-Za-z0-9._~!$&'()*+,;=-]*(:[0-9]{1,5})?(/` + pchar + `*)*`
)

// formats are the expressions by name, and the longest text, if one is set.
var formats = map[string]struct {
	expression string
	most       int
}{
	"date":                  {date, unbounded},
	"time":                  {clock, unbounded},
	"date-time":             {date + `[Tt]` + clock, unbounded},
	"duration":              {`P(` + days + `(T` + hours + `)?|T` + hours + `|[0-9]+W)`, unbounded},
	"email":                 {atom + `(\.` + atom + `)*@` + host, 64},
	"idn-email":             {atom + `(\.` + atom + `)*@` + host, 64},
	"hostname":              {host, 63},
	"idn-hostname":          {host, 63},
	"ipv4":                  {ipv4, unbounded},
	"ipv6":                  {ipv6(), unbounded},
	"uri":                   {`[A-Za-z][A-Za-z0-9+.-]*:(` + authority + `|/?` + pchar + `+(/` + pchar + `*)*)` + tail, unbounded},
	"iri":                   {`[A-Za-z][A-Za-z0-9+.-]*:(` + authority + `|/?` + pchar + `+(/` + pchar + `*)*)` + tail, unbounded},
	"uri-reference":         {reference, unbounded},
	"iri-reference":         {reference, unbounded},
	"uri-template":          {`(/?([A-Za-z0-9._~-]+|\{[A-Za-z0-9_]+\}))*`, unbounded},
	"uuid":                  {`[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`, unbounded},
	"json-pointer":          {`(/([^~/]|~[01])*)*`, unbounded},
	"relative-json-pointer": {`(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)`, unbounded},
}

const reference = `([A-Za-z][A-Za-z0-9+.-]*:)?(` + authority + `|/(` + pchar + `+(/` + pchar + `*)*)?|)` + tail + `|[A-Za-z0-9._~!$&'()*+,;=@-]+(/` + pchar + `*)*` + tail

// ipv6 lists where :: may stand, without IPv4 at the end.
func ipv6() string {
	list := []string{`(` + group + `:){7}` + group}
	times := func(n int, before, after string) string {
		return strings.Repeat(before+group+after, n)
	}
	for left := range 8 { // groups before ::, and up to 7-left behind
		head := ""
		if left > 0 {
			head = group + times(left-1, ":", "")
		}
		for right := range 8 - left {
			behind := ""
			if right > 0 {
				behind = group + times(right-1, ":", "")
			}
			list = append(list, head+"::"+behind)
		}
	}
	return strings.Join(list, "|")
}
