package reproduce

import "fmt"

// rangeText writes a range such as 12…34 %, or one number if the ends are equal.
func rangeText(s span, unit string) string {
	if s.lo > s.hi {
		return "–"
	}
	number := func(x float64) string {
		switch {
		case unit == "tokens" || unit == "" && x == float64(int(x)):
			return fmt.Sprintf("%.0f", x)
		case unit == "ms" && x < 1000:
			return fmt.Sprintf("%.1f", x)
		case unit == "ms":
			return fmt.Sprintf("%.0f", x)
		}
		return fmt.Sprintf("%.1f", x)
	}
	text := number(s.lo)
	if number(s.hi) != text {
		text += "…" + number(s.hi)
	}
	if unit != "" && unit != "tokens" {
		text += " " + unit
	}
	return text
}
