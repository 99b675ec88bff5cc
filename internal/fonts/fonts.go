// Package fonts bounds the width of text in any common sans-serif font.
package fonts

// The advance widths from the blank to the tilde, in thousandths of the size: of Helvetica (also
// Arial and Liberation Sans) or DejaVu Sans, whichever is wider.
var regular = [...]int{
	318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337,
	636, 636, 636, 636, 636, 636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 556,
	1015, 684, 686, 722, 770, 667, 611, 778, 752, 295, 500, 667, 557, 863, 748, 787,
	667, 787, 722, 667, 611, 732, 684, 989, 685, 667, 685, 390, 337, 390, 838, 556,
	500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612,
	635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
}

var bold = [...]int{
	348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365,
	696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 611,
	1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 556, 775, 637, 995, 837, 850,
	733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 556,
	500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687,
	716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
}

// Width returns an upper bound on the width of a line of text, in the unit of size.
func Width(text string, size float64, isBold bool) float64 {
	table := regular[:]
	if isBold {
		table = bold[:]
	}
	sum := 0
	for _, r := range text {
		if r == '\u00a0' {
			r = ' '
		}
		if i := int(r) - ' '; i >= 0 && i < len(table) {
			sum += table[i]
		} else {
			sum += 1000 // an em, as wide as ideographs are
		}
	}
	return float64(sum) / 1000 * size
}
