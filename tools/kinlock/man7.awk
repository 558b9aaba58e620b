# Writes kinlock(7), the page of the environment variables, from the guide: from docs/guide/knobs.md
# and from the section "Settings" of docs/guide/unmodified-programs.md, which have their tables.
#
#     awk -v version=VERSION -f man7.awk docs/guide/knobs.md docs/guide/unmodified-programs.md
#
# Of Markdown it knows what these have: paragraphs, code spans, links, emphasis, and tables with the
# columns environment, values and default, which become lists.

BEGIN {
    printf ".TH kinlock 7 \"\" \"kinlock %s\" \"kinlock\"\n.nh\n.ad l\n", version
    print ".SH NAME\nkinlock \\- the environment variables of kinlock's locks"
}

FNR == 1 {
    end_paragraph()
    file++
    wanted = 0
}
/^#/ {
    end_paragraph()
    wanted = file == 1 ? /^# Knobs$/ : /^## Settings$/
    if (wanted) {
        sections++
        print ".SH " (file == 1 ? "LOCKS" : "PROGRAMS UNDER THE PRELOADED LIBRARY")
    }
    next
}
!wanted { next }
/^\|/ {
    end_paragraph()
    row($0)
    next
}
/^$/ { end_paragraph(); next }
{ paragraph = paragraph == "" ? $0 : paragraph " " $0 }

END {
    end_paragraph()
    if (sections != 2 || variables < 2) {
        print "man7.awk: the guide has not the two sections with tables" > "/dev/stderr"
        exit 1
    }
    print ".SH SEE ALSO\n.BR kinlock (1),\n.BR kinlock\\-run (1),\n.BR kinlock_set (3)"
}

function end_paragraph() {
    if (paragraph != "") print ".PP\n" formatted(paragraph)
    paragraph = ""
}

# A row of a table: its head, which names the columns, the line below that, or a variable.
function row(text,    count, cell, i, note) {
    gsub(/^\| *| *\|$/, "", text)
    count = split(text, cell, / *\| */)
    if (cell[1] == "environment") {
        for (i in column) delete column[i]
        for (i = 1; i <= count; i++) column[cell[i]] = i
        return
    }
    if (text ~ /^---/) return
    if (!("values" in column) || !("default" in column)) {
        print "man7.awk: a table without the columns values and default" > "/dev/stderr"
        exit 1
    }
    variables++
    print ".TP\n" formatted(cell[1])
    print formatted(cell[column["values"]] ".")
    note = "Default: " cell[column["default"]] "."
    if ("function" in column && cell[column["function"]] != "") {
        note = note " In Rust: `kinlock::config::" substr(cell[column["function"]], 2) "."
    }
    print ".br\n" formatted(note)
}

function formatted(text,    out, part) {
    gsub(/\\/, "\\e", text)
    # A link in parentheses leads to another page, and says nothing here.
    gsub(/ \(\[[^]]*\]\([^)]*\)\)/, "", text)
    out = ""
    while (match(text, /`[^`]*`|\[[^]]*\]\([^)]*\)|\*[^*]*\*/)) {
        part = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1)
        text = substr(text, RSTART + RLENGTH)
        if (part ~ /^`/) {
            part = substr(part, 2, length(part) - 2)
            gsub(/-/, "\\-", part)
            out = out "\\fB" part "\\fR"
        } else if (part ~ /^\*/) {
            out = out "\\fI" substr(part, 2, length(part) - 2) "\\fR"
        } else {
            sub(/\]\(.*/, "", part)
            text = substr(part, 2) text
        }
    }
    out = out text
    return out ~ /^[.']/ ? "\\&" out : out
}
