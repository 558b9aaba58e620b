# Writes the man pages of section 3 from kinlock.h: kinlock(3) from what stands at its top, a page
# for each section of the header, and for each function one that leads to the page of its section.
#
#     awk -v folder=DIR -v version=VERSION -f man.awk include/kinlock.h
#
# A comment tells of the declarations between it and the next comment. A blank line in a comment
# begins a paragraph. A line that ends although the next word would have fitted ends in the page,
# too. What is conditional within a section is for compilers, and left out.

BEGIN {
    COLUMNS = 100
    INDENT = 3
    # The pages of the sections; "" is for compilers alone.
    page["version"] = "kinlock_version"
    page["what compilers know"] = ""
    page["time"] = "kinlock_now"
    page["the mutex"] = "kinlock_mutex"
    page["the condition variable"] = "kinlock_cond"
    page["the reader-writer lock"] = "kinlock_rwlock"
    page["the spinlock"] = "kinlock_spin"
    page["once"] = "kinlock_once"
    page["knobs and statistics"] = "kinlock_set"
    page["topology"] = "kinlock_cpu"
    page["concurrency IDs"] = "kinlock_ids"
    page["delayed invalidation"] = "kinlock_invalidation"
    page["ThreadSanitizer"] = ""
    current = "kinlock"
    title = "locks for many threads and short critical sections, for C and C++"
}

# ---- comments ----

FNR == 1 && !/^\/\*.*SPDX/ { fail("the first line has no licence") }
FNR == 1 { in_comment = 1; next }
declaration == "" && !in_comment && /^\/\* ---- / {
    end_page()
    title = $0
    sub(/^\/\* -+ /, "", title)
    sub(/ -+ \*\/$/, "", title)
    if (!(title in page)) fail("no page is named for the section \"" title "\"")
    current = page[title]
    next
}
declaration == "" && !in_comment && !conditional && /^\/\*/ {
    end_group()
    in_comment = 1
}
in_comment {
    text = $0
    in_comment = !sub(/ *\*\/$/, "", text)
    sub(/^(\/\* |   )/, "", text)
    line[++lines] = text
    next
}

# ---- declarations ----

/^#if/ && current != "kinlock" { conditional++ }
conditional {
    if (/^#endif/) conditional--
    next
}
current == "" || current == "kinlock" { next }
declaration == "" && (/^$/ || /^}/ || /^#endif/) { next }
{
    declaration = declaration == "" ? $0 : declaration "\n" $0
    text = $0
    depth += gsub(/[{(]/, "", text) - gsub(/[})]/, "", text)
    if (declaration ~ /^#/ ? !/\\$/ : depth == 0 && /;$/) {
        declare(declaration)
        declaration = ""
        depth = 0
    }
}

END {
    if (failed) exit 1
    if (in_comment || declaration != "") fail("the file ends within a comment or a declaration")
    end_page()
    see = ""
    for (i = 1; i <= pages; i++) see = see "\n.BR " made[i] " (3)" (i < pages ? "," : "")
    write_page("kinlock", "kinlock", introduction_title, "", introduction, see)
}

function fail(what) {
    print "man.awk: " FILENAME ":" FNR ": " what > "/dev/stderr"
    failed = 1
    exit 1
}

# ---- texts ----

# As the formatter is to see it, with names of the interface in bold and arguments in italics.
function formatted(text,    out, name) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    out = ""
    while (match(text, /`[a-z_]+`|KINLOCK_[A-Z_]*[A-Z]|kinlock_[a-z_]*[a-z]/)) {
        name = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1)
        out = out (name ~ /^`/ ? "\\fI" substr(name, 2, RLENGTH - 2) : "\\fB" name) "\\fR"
        text = substr(text, RSTART + RLENGTH)
    }
    return guarded(out text)
}

# A line that begins with one of these would be a request.
function guarded(text) {
    return text ~ /^[.']/ ? "\\&" text : text
}

# The comment that was read last. Its paragraphs but the first begin with the macro `begin`.
function paragraphs(begin,    i, text, last, word, all) {
    for (i = 1; i <= lines; i++) {
        text = line[i]
        word = text
        sub(/^ +/, "", word)
        sub(/ .*/, "", word)
        if (text ~ /^[A-Z][A-Z]/ && text !~ /[.:]$/ && last == "" && line[i + 1] == "") {
            all = all ".SH " text "\n"
        } else if (text ~ /^- /) {
            all = all ".IP \\(bu 2\n" formatted(substr(text, 3)) "\n"
        } else if (text != "") {
            if (last == "" && all != "" && all !~ /\n\.SH [^\n]*\n$/) all = all begin "\n"
            if (last != "" && INDENT + length(last) + 1 + length(word) <= COLUMNS) all = all ".br\n"
            sub(/^ +/, "", text)
            all = all formatted(text) "\n"
        }
        last = line[i]
    }
    for (i in line) delete line[i]
    lines = 0
    return all
}

# The comment, below what was declared after it.
function end_group(    i) {
    if (lines > 0 && names == 0) body = body ".PP\n" paragraphs(".PP")
    for (i = 1; lines > 0 && i <= names; i++) {
        body = body (i == 1 ? ".TP" : ".TQ") "\n.B " name[i] "\n"
    }
    if (lines > 0) body = body paragraphs(".IP")
    names = 0
}

# ---- pages ----

function end_page(    i, list) {
    if (current == "kinlock") {
        introduction_title = title
        introduction = paragraphs(".PP")
    } else if (current != "") {
        end_group()
        if (functions == 0) fail("the section before this line has no function")
        list = functions > 1 || function_name[1] != current ? current : ""
        for (i = 1; i <= functions; i++) {
            if (function_name[i] != current) list = list ", " function_name[i]
        }
        sub(/^, /, "", list)
        if (list == "") list = current
        write_page(current, list, title, synopsis, body, "\n.BR kinlock (3)")
        for (i = 1; i <= functions; i++) {
            if (function_name[i] != current) write_link(function_name[i], current)
        }
        made[++pages] = current
    }
    synopsis = body = ""
    functions = names = lines = 0
}

function write_page(of, list, about, synopsis, body, see,    file) {
    file = folder "/" of ".3"
    printf ".TH %s 3 \"\" \"kinlock %s\" \"kinlock in C\"\n", of, version > file
    printf ".nh\n.ad l\n.SH NAME\n%s \\- %s\n", list, about > file
    printf ".SH SYNOPSIS\n.nf\n.B #include <kinlock.h>\n%s.PP\n", synopsis > file
    printf "Link with \\fI\\-lkinlock\\fR.\n.fi\n" > file
    printf ".SH DESCRIPTION\n%s", body > file
    printf ".SH SEE ALSO%s,\n.BR kinlock (7)\n", see > file
    close(file)
}

function write_link(from, to,    file) {
    file = folder "/" from ".3"
    print ".so man3/" to ".3" > file
    close(file)
}

# ---- the synopsis ----

function declare(text,    identifier, count, part, i) {
    if (text ~ /^KINLOCK_ASSERT/) return
    gsub(/KINLOCK_NOEXCEPT|KINLOCK_MUST_CHECK/, "", text)
    while (match(text, /KINLOCK_ANALYSIS\(/)) text = without_use(text)
    identifier = text
    if (text ~ /^typedef/) {
        sub(/;$/, "", identifier)
        sub(/.*[ }]/, "", identifier)
    } else if (text ~ /^(struct|#define)/) {
        sub(/^#define /, "", identifier)
        sub(/ *[ {][^a-z]*[{(0-9U\\].*/, "", identifier)
    } else if (match(text, /kinlock_[a-z_]+\(/)) {
        identifier = substr(text, RSTART, RLENGTH - 1)
        function_name[++functions] = identifier
        identifier = identifier "()"
    } else {
        fail("this declaration is not understood")
    }
    name[++names] = identifier
    if (text !~ /^(typedef )?struct.*[{]/) text = wrapped(text)
    sub(/struct  [{]/, "struct {", text)
    count = split(text, part, "\n")
    synopsis = synopsis ".PP\n"
    for (i = 1; i <= count; i++) {
        gsub(/\\/, "\\e", part[i])
        gsub(/-/, "\\-", part[i])
        synopsis = synopsis "\\fB" part[i] "\\fR\n"
    }
}

# On one line, or on several if that is too long for a terminal.
function wrapped(text,    out, at) {
    gsub(/\\\n/, " ", text)
    gsub(/[ \n]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ ;$/, ";", text)
    while (length(text) > 72) {
        for (at = 72; at > 30 && substr(text, at, 2) != ", "; at--);
        if (at == 30) break
        out = out substr(text, 1, at) "\n"
        text = "        " substr(text, at + 2)
    }
    return out text
}

# Without the use of a macro that `match` has found, up to the end of its argument.
function without_use(text,    before, rest, depth, i, c) {
    before = substr(text, 1, RSTART - 1)
    rest = substr(text, RSTART + RLENGTH)
    depth = 1
    for (i = 1; depth > 0 && i <= length(rest); i++) {
        c = substr(rest, i, 1)
        depth += (c == "(") - (c == ")")
    }
    return before substr(rest, i)
}
