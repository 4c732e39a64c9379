"""Stop words of twelve languages, and detection of a language by its stop words.

Languages not listed here have no stop words; idf gives such words little weight anyway. Words are split as `pieces`
does: "l'eau" is l and eau. A stop word is omitted if its stem equals that of a content word, such as German "war", the
stem of "Waren".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

STOP_WORDS: dict[str, str] = {
    "english": """
a about above after again against all also am an and any are as at be because been before being below between both
but by can could did do does doing down during each few for from further had has have having he her here hers
herself him himself his how i if in into is it its itself just ll me more most my myself no nor not now of off on
once only or other our ours ourselves out over own re s same she should so some such t than that the their theirs
them themselves then there these they this those through to too under until up ve very was we were what when where
which while who whom why will with would you your yours yourself yourselves
""",
    "german": """
aber als also am an auch auf aus bei beim bin bis da damit dann das dass dein deine dem den denn der des dessen
deren dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines er es
etwas euch euer für gegen hat hatte hatten hier hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in indem ins
ist ja jede jedem jeden jeder jedes jetzt kann kein keine keinem keinen keiner können mich mir mit nach nicht noch
nun nur ob oder ohne sehr sich sie sind so solche sondern soll über um und uns unser unsere unter vom von vor wann
warum was weil welche welchem welchen welcher welches wenn wer werden wie wieder wir wird wo zu zum zur zwischen
""",
    "french": """
à ai ainsi au aucun aussi autre autres aux avec c car ce cela celle celles celui ces cet cette ceux chaque comme
comment d dans de depuis des dont du elle elles en entre es est et étaient était eu eux il ils j je l la le les leur
leurs lors lui m ma mais me même mes moi mon n ne ni nos notre nous on ont ou où par pas pendant peut plus pour
pourquoi qu quand que quel quelle quelles quels qui s sa sans se ses si son sont sous sur t ta te tes toi ton tous
tout toute toutes très tu un une vos votre vous y
""",
    "spanish": """
a al algo algunas algunos ante antes aunque cada casi como cómo con contra cual cuál cuales cuando cuándo de del
desde donde dónde dos durante e el él ella ellas ellos en entre era eran es esa ese eso esas esos esta está están
estas este esto estos fue fueron ha hace han hasta hay la las le les lo los más me mi mis mucho muy nada ni no nos
nosotros o otra otras otro otros para pero poco por porque que qué quien quién se según ser si sí sin sobre son su
sus también tan tanto te tiene tienen todo todos tu tus u un una uno unos y ya yo
""",
    "italian": """
a abbia ad agli ai al alcuni alcune alla alle allo altri altro anche c che chi ci ciò col come con contro cosa così
cui d da dagli dai dal dalla dalle dallo degli dei del dell della delle dello di dopo dove e è ed era erano essa
esse essi essere esso fra fu gli ha hanno i il in io l la le lei li lo loro lui ma me mentre mi mia mie miei mio ne
né negli nei nel nell nella nelle nello noi non nostra nostro o ogni per perché più poi prima quale quali quando
quanto quella quelle quelli quello questa queste questi questo qui se sei senza si sia sono su sua sue sugli sui sul
sull sulla sulle suo suoi tra tu tua tuo tutti tutto un una uno vi voi
""",
    "portuguese": """
a à ainda além algumas alguns ante antes ao aos apenas as às assim até cada com como contra da das de dela dele
deles depois do dos e é ela elas ele eles em enquanto entre era eram essa essas esse esses esta está estão estas
este estes eu foi foram há isso isto já lhe lhes mais mas me mesmo meu meus minha muito na não nas nem no nos nós
num numa o onde os ou para pela pelas pelo pelos pode por porque quais qual quando quanto que quem se seja sem ser
seu seus sob sobre sua suas são também te tem têm todo todos tu tudo um uma umas uns você
""",
    "dutch": """
aan als al alles altijd ander andere bij dan dat de der deze die dit doch door dus een en er ge geen had heb hebben
heeft hem het hier hij hoe hun ik in is ja je kan kon kunnen maar me meer men met mij mijn na naar niet niets nog nu
of om omdat ons onder ook op over reeds te tegen toch toen tot u uit uw van veel voor waren wat werd wezen wie wij
wordt worden zal ze zelf zich zij zijn zo zonder zou
""",
    "swedish": """
alla allt att av blev bli blir de dem den denna deras dess dessa det detta dig din dina ditt du där efter ej eller
en er ett från för ha hade han hans har henne hennes hon honom hur här i icke ingen inom inte jag ju kan kunde man
med mellan men mig min mina mitt mot mycket ni nu när någon något några och om oss på samma sedan sig sin sina sitt
ska skulle som så sådan till under upp ut utan vad var vara varför vars vem vi vid vilka vilken vilket
""",
    "danish": """
af alle alt anden at blev blive bliver da de dem den denne der deres det dette dig din disse du efter eller en end
er et for fra ham han hans har havde have hende hendes her hos hun hvad hvis hvor hvordan hvorfor i ikke ind jeg jer
jo kan kunne man mange med meget men mig min mine mit mod ned noget nogle nu når og også om op os over på selv sig
sin sine sit skal skulle som sådan thi til ud under var vi vil ville vor være været
""",
    "norwegian": """
alle at av bare begge ble bli blir da de deg dei deim deira deres det dette di din disse ditt du då eg ein eit eller
en enn er et ett etter for fordi fra før ha hadde han hans har hennar henne hennes her hjå ho hun hva hvem hver
hvilken hvis hvor hvordan hvorfor i ikke ikkje ingen inn ja jeg kan korleis kunne kva kvar man mange med meg mellom
men mens mer mi min mitt mot mye mykje ned no noe noen nå når og også om opp oss over på så selv sin sine sitt skal
skulle slik som til um under ut uten var ved vi vil ville vore være vært
""",
    "finnish": """
ei eivät emme en että et ette he heidän heidät heille heitä hän häneen hänelle hänen hänet häntä ja jo joka joita
jolle jonka jos josta jotka jotta kanssa kuin kuka kun kuten me meidän meidät meille mikä minkä minun minut minä
mitä mukaan mutta myös ne nyt näin niin niiden niitä noin nämä näiden ole olemme olen olet oli olisi olivat olla on
ovat sekä se sen siellä sille sinä sitä siinä tai tämä tämän tässä te teidän tuo tätä vaan vai vaikka vain voi
""",
    "russian": """
а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да даже для до его ее её если
есть еще ещё же за здесь и из или им их к как какая какой ко когда которая которого которое которой которые который
которых кто ли либо мне может можно мы на надо нам нас не него нее неё ней нет ни них но ну о об однако он она они
оно от очень по под при с со так также такой там тем то того тоже той только том тот у уже хотя чего чем что чтобы
эта эти этим этих это этого этой этом этот эту я
""",
}

_MAX_SAMPLE_WORDS = 20_000  # a few hundred words suffice for a stable share of stop words
_MIN_SAMPLE_WORDS = 30
# Stop words are 30 to 50 % of running text, but rare in lists of names or products.
_MIN_SHARE = 0.2
_MIN_RATIO = 1.5  # to the share of English stop words, since languages share some: "is", "in" and "of" are Dutch, too


def detect_language(words: Iterable[str], default: str = "english") -> str:
    """Return the language whose stop words are most frequent, or the default if that is unclear.

    >>> detect_language("der hund und die katze sind nicht in dem haus denn sie schlafen auf einem stuhl".split() * 2)
    'german'
    >>> detect_language("red shoes size 42".split())
    'english'
    """
    sample = Counter(word for word, _ in zip(words, range(_MAX_SAMPLE_WORDS), strict=False))
    total = sample.total()
    if total < _MIN_SAMPLE_WORDS:
        return default
    shares = {
        language: sum(sample[word] for word in set(known.split())) / total for language, known in STOP_WORDS.items()
    }
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= _MIN_SHARE and shares[best] >= _MIN_RATIO * shares[default] else default
