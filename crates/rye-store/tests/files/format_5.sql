BEGIN TRANSACTION;
CREATE TABLE engine_credentials (
    number     INTEGER PRIMARY KEY,
    owner      TEXT NOT NULL,       -- session:ID, user:ID or org:ID
    service    TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    sealed     TEXT NOT NULL,
    UNIQUE (owner, service)
) STRICT;
CREATE TABLE engine_decision_gate_refs (
    number  INTEGER PRIMARY KEY,
    gate    INTEGER NOT NULL,
    channel TEXT NOT NULL,
    message TEXT NOT NULL,
    UNIQUE (gate, channel, message)
) STRICT;
CREATE TABLE engine_decision_gates (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    item    TEXT NOT NULL,
    pending INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE TABLE engine_ids (
    session INTEGER NOT NULL,
    open    INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,          -- entry or item
    number  INTEGER NOT NULL,       -- the row in the log
    PRIMARY KEY (session, open, id, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO "engine_ids" VALUES(1,0,'q0','item',68719476738);
INSERT INTO "engine_ids" VALUES(1,0,'q1','item',68719476743);
INSERT INTO "engine_ids" VALUES(1,0,'q2','item',68719476748);
INSERT INTO "engine_ids" VALUES(1,1,'q3','item',68719476753);
INSERT INTO "engine_ids" VALUES(2,0,'a','entry',137438953485);
INSERT INTO "engine_ids" VALUES(2,0,'a','item',137438953486);
INSERT INTO "engine_ids" VALUES(2,0,'b','item',137438953474);
INSERT INTO "engine_ids" VALUES(2,0,'c','entry',137438953482);
INSERT INTO "engine_ids" VALUES(2,0,'f','entry',137438953491);
INSERT INTO "engine_ids" VALUES(2,0,'g','entry',137438953488);
INSERT INTO "engine_ids" VALUES(2,1,'c','item',137438953483);
INSERT INTO "engine_ids" VALUES(2,1,'d','item',137438953477);
INSERT INTO "engine_ids" VALUES(2,1,'f','item',137438953492);
INSERT INTO "engine_ids" VALUES(2,1,'g','item',137438953489);
INSERT INTO "engine_ids" VALUES(3,1,'q1','item',206158430209);
CREATE TABLE "engine_inbox" (
    number  INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
CREATE TABLE engine_leases (
    epoch    INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT NOT NULL UNIQUE,
    host     TEXT NOT NULL,
    process  TEXT NOT NULL,         -- PID:START:BOOT
    instance INTEGER NOT NULL       -- which store of that process
) STRICT;
INSERT INTO "engine_leases" VALUES(2,'any-order','vm','31725:2420497:79f95cd7',1);
INSERT INTO "engine_leases" VALUES(4,'in-order','vm','31725:2420497:79f95cd7',1);
CREATE TABLE engine_log (
    number   INTEGER PRIMARY KEY,   -- the session's number << 36, and the place in its log
    kind     TEXT NOT NULL,         -- entry; item, which is a prompt; or events
    sequence INTEGER NOT NULL,      -- the number of the session's last event up to here
    named    INTEGER NOT NULL,      -- whether its id is in engine_ids
    thread   INTEGER,               -- of an entry or a prompt
    parent   INTEGER,               -- an entry's; always a lower number, so a path cannot run in a circle
    id       TEXT,                  -- of an entry or a prompt
    asked    BLOB,                  -- the hash of what a prompt asked, whatever became of it
    doc      TEXT NOT NULL          -- the thing itself; of events, a list of all that a commit tells
) STRICT;
INSERT INTO "engine_log" VALUES(68719476737,'entry',0,0,1,NULL,'e00',NULL,'{"id":"e00","session":"in-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e00"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476738,'item',0,1,1,NULL,'q0',X'514D51D654F720EE492E2BBD208CD817C3BDCA92E8EA6748A5EBA4198E7DE13A','{"id":"q0","session":"in-order","thread":"main","order":0,"content":"please do q0","mode":"followup","status":"done","created_at":3000}');
INSERT INTO "engine_log" VALUES(68719476739,'events',2,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391070,"kind":{"type":"status","status":"thinking"}},{"thread":"main","at":1794845391070,"kind":{"type":"message_end","entry":"e00"}}]');
INSERT INTO "engine_log" VALUES(68719476740,'entry',2,0,1,68719476737,'e01',NULL,'{"id":"e01","session":"in-order","thread":"main","parent":"e00","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e01"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476741,'events',3,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391071,"kind":{"type":"message_end","entry":"e01"}}]');
INSERT INTO "engine_log" VALUES(68719476742,'entry',3,0,1,68719476740,'e10',NULL,'{"id":"e10","session":"in-order","thread":"main","parent":"e01","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e10"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476743,'item',3,1,1,NULL,'q1',X'95DC7DDB4DBF85340E865FA08A400E49547D210940D20658AD0E60D06D011A64','{"id":"q1","session":"in-order","thread":"main","order":1,"content":"please do q1","mode":"followup","status":"done","created_at":3000}');
INSERT INTO "engine_log" VALUES(68719476744,'events',5,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391071,"kind":{"type":"status","status":"thinking"}},{"thread":"main","at":1794845391071,"kind":{"type":"message_end","entry":"e10"}}]');
INSERT INTO "engine_log" VALUES(68719476745,'entry',5,0,1,68719476742,'e11',NULL,'{"id":"e11","session":"in-order","thread":"main","parent":"e10","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e11"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476746,'events',6,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391071,"kind":{"type":"message_end","entry":"e11"}}]');
INSERT INTO "engine_log" VALUES(68719476747,'entry',6,0,1,68719476745,'e20',NULL,'{"id":"e20","session":"in-order","thread":"main","parent":"e11","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e20"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476748,'item',6,1,1,NULL,'q2',X'C94C0754E77AEBCC7BC47DBD81B9E43A72550DE98D144148BC67A04D71602615','{"id":"q2","session":"in-order","thread":"main","order":2,"content":"please do q2","mode":"followup","status":"done","created_at":3000}');
INSERT INTO "engine_log" VALUES(68719476749,'events',8,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391072,"kind":{"type":"status","status":"thinking"}},{"thread":"main","at":1794845391072,"kind":{"type":"message_end","entry":"e20"}}]');
INSERT INTO "engine_log" VALUES(68719476750,'entry',8,0,1,68719476747,'e21',NULL,'{"id":"e21","session":"in-order","thread":"main","parent":"e20","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e21"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476751,'events',9,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391072,"kind":{"type":"message_end","entry":"e21"}}]');
INSERT INTO "engine_log" VALUES(68719476752,'entry',9,0,1,68719476750,'e30',NULL,'{"id":"e30","session":"in-order","thread":"main","parent":"e21","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e30"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476753,'item',9,1,1,NULL,'q3',X'AD9C1553D483828221B5BD14DF548D2752124616E17C8C9D1A59FB347C5AEABC','{"id":"q3","session":"in-order","thread":"main","order":3,"content":"please do q3","mode":"followup","status":"running","created_at":3000}');
INSERT INTO "engine_log" VALUES(68719476754,'events',11,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391072,"kind":{"type":"status","status":"thinking"}},{"thread":"main","at":1794845391072,"kind":{"type":"message_end","entry":"e30"}}]');
INSERT INTO "engine_log" VALUES(68719476755,'entry',11,0,1,68719476752,'e31',NULL,'{"id":"e31","session":"in-order","thread":"main","parent":"e30","item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e31"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(68719476756,'events',12,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391073,"kind":{"type":"message_end","entry":"e31"}}]');
INSERT INTO "engine_log" VALUES(137438953473,'entry',0,0,2,NULL,'b',NULL,'{"id":"b","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is b"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953474,'item',0,1,2,NULL,'b',X'F96E70B9786FD48E2E4D25C6B9AB56D4140D66052BDF5F991A35C313178AAB3E','{"id":"b","session":"any-order","thread":"main","order":0,"content":"please do b","mode":"followup","status":"done","created_at":3000}');
INSERT INTO "engine_log" VALUES(137438953475,'events',1,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391074,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953476,'entry',1,0,2,NULL,'d',NULL,'{"id":"d","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is d"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953477,'item',1,1,3,NULL,'d',X'3A69C6215C615023A46C1598450A1C3990F8C564B7BFF0B9E83E0630EA243B57','{"id":"d","session":"any-order","thread":"side","order":1,"content":"please do d","mode":"followup","status":"waiting","created_at":3000}');
INSERT INTO "engine_log" VALUES(137438953478,'events',2,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391074,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953479,'entry',2,0,2,NULL,'e',NULL,'{"id":"e","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is e"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953481,'events',3,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391075,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953482,'entry',3,1,2,NULL,'c',NULL,'{"id":"c","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is c"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953483,'item',3,1,2,NULL,'c',X'56782BC24E00AF46C057C0CED5A0FCE0EE6496560C50DFF27544A57FA3C3C126','{"id":"c","session":"any-order","thread":"main","order":3,"content":"please do c","mode":"followup","status":"running","created_at":3000}');
INSERT INTO "engine_log" VALUES(137438953484,'events',4,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391075,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953485,'entry',4,1,2,NULL,'a',NULL,'{"id":"a","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is a"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953486,'item',4,1,3,NULL,'a',X'DD1F3B7D2BC4DDE1851CC3FE01BA045CE1F5BC68794474AED55429EBD53A8B9D','{"id":"a","session":"any-order","thread":"side","order":4,"content":"please do a","mode":"followup","status":"aborted","created_at":3000}');
INSERT INTO "engine_log" VALUES(137438953487,'events',5,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391075,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953488,'entry',5,1,2,NULL,'g',NULL,'{"id":"g","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is g"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953489,'item',5,1,2,NULL,'g',X'124C246CAACEFED8DA799265F14490DC752641F555C871DA91950BBB8BCA868E','{"id":"g","session":"any-order","thread":"main","order":5,"content":"please do g","mode":"followup","status":"waiting","created_at":3000}');
INSERT INTO "engine_log" VALUES(137438953490,'events',6,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391076,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953491,'entry',6,1,2,NULL,'f',NULL,'{"id":"f","session":"any-order","thread":"main","parent":null,"item":null,"kind":{"type":"message","role":"user","parts":[{"type":"text","text":"this is f"}]},"created_at":2000}');
INSERT INTO "engine_log" VALUES(137438953492,'item',6,1,3,NULL,'f',X'8903C5B7B77847AE9070F2CAD8D8EB5EDB317E6052BB2E12307EA8A1E002218C','{"id":"f","session":"any-order","thread":"side","order":6,"content":"please do f","mode":"followup","status":"waiting","created_at":3000}');
INSERT INTO "engine_log" VALUES(137438953493,'events',7,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391076,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(137438953494,'events',8,0,NULL,NULL,NULL,NULL,'[{"thread":"main","at":1794845391076,"kind":{"type":"status","status":"thinking"}}]');
INSERT INTO "engine_log" VALUES(206158430209,'item',0,1,4,NULL,'q1',X'95DC7DDB4DBF85340E865FA08A400E49547D210940D20658AD0E60D06D011A64','{"id":"q1","session":"posted","thread":"main","order":1,"content":"please do q1","mode":"followup","status":"waiting","created_at":3000}');
CREATE TABLE engine_posts (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    source  TEXT NOT NULL
) STRICT;
INSERT INTO "engine_posts" VALUES(1,'posted','vm 31725:2420497:79f95cd7 1');
CREATE TABLE engine_sessions (
    number  INTEGER PRIMARY KEY,
    id      TEXT NOT NULL UNIQUE,
    user_id TEXT,
    fixed   TEXT NOT NULL,          -- what never changes: a second session of the same id differs in it
    usage   TEXT NOT NULL,          -- the truth of it; that in `doc` is as old as the row
    doc     TEXT NOT NULL
, parent TEXT
    GENERATED ALWAYS AS (doc ->> '$.parent.session') VIRTUAL) STRICT;
INSERT INTO "engine_sessions" VALUES(1,'in-order','ada','["ada",null,"interactive",null,0,1000]','{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0}','{"id":"in-order","user_id":"ada","org_id":null,"workspace":"/work","purpose":"interactive","status":"running","sandbox":null,"snapshot_id":null,"parent":null,"depth":0,"model":null,"limits":{"turns":null,"tokens":null,"micro_dollars":null,"depth":null,"until":null},"usage":{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0},"metadata":{},"created_at":1000,"updated_at":1000}');
INSERT INTO "engine_sessions" VALUES(2,'any-order','ada','["ada",null,"interactive",null,0,1000]','{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0}','{"id":"any-order","user_id":"ada","org_id":null,"workspace":"/work","purpose":"interactive","status":"running","sandbox":null,"snapshot_id":null,"parent":null,"depth":0,"model":null,"limits":{"turns":null,"tokens":null,"micro_dollars":null,"depth":null,"until":null},"usage":{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0},"metadata":{},"created_at":1000,"updated_at":1000}');
INSERT INTO "engine_sessions" VALUES(3,'posted','ada','["ada",null,"interactive",null,0,1000]','{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0}','{"id":"posted","user_id":"ada","org_id":null,"workspace":"/work","purpose":"interactive","status":"running","sandbox":null,"snapshot_id":null,"parent":null,"depth":0,"model":null,"limits":{"turns":null,"tokens":null,"micro_dollars":null,"depth":null,"until":null},"usage":{"turns":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"micro_dollars":0},"metadata":{},"created_at":1000,"updated_at":1000}');
CREATE TABLE engine_suspended_turns (
    number  INTEGER PRIMARY KEY,
    gate    TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL,
    doc     TEXT NOT NULL
) STRICT;
CREATE TABLE "engine_threads" (
    number      INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL,
    id          TEXT NOT NULL,
    key         TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    turns       INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    spend       INTEGER NOT NULL,
    doc         TEXT NOT NULL,
    UNIQUE (session, id)
) STRICT;
INSERT INTO "engine_threads" VALUES(1,1,'main','web:main',1000,4,0,0,0,28,0,'{"id":"main","session":"in-order","key":"web:main","status":"active","leaf":null,"mode":"followup","model":null,"summary":null,"turn":null,"metadata":{},"created_at":1000,"updated_at":1000}');
INSERT INTO "engine_threads" VALUES(2,2,'main','web:main',1000,0,0,0,0,0,0,'{"id":"main","session":"any-order","key":"web:main","status":"active","leaf":null,"mode":"followup","model":null,"summary":null,"turn":null,"metadata":{},"created_at":1000,"updated_at":1000}');
INSERT INTO "engine_threads" VALUES(3,2,'side','web:side',1000,0,0,0,0,0,0,'{"id":"side","session":"any-order","key":"web:side","status":"active","leaf":null,"mode":"followup","model":null,"summary":null,"turn":null,"metadata":{},"created_at":1000,"updated_at":1000}');
INSERT INTO "engine_threads" VALUES(4,3,'main','web:main',1000,0,0,0,0,0,0,'{"id":"main","session":"posted","key":"web:main","status":"active","leaf":null,"mode":"followup","model":null,"summary":null,"turn":null,"metadata":{},"created_at":1000,"updated_at":1000}');
CREATE INDEX engine_sessions_user ON engine_sessions (user_id);
CREATE INDEX engine_decision_gates_item ON engine_decision_gates (session, item);
CREATE INDEX engine_decision_gates_pending ON engine_decision_gates (session) WHERE pending = 1;
CREATE INDEX engine_suspended_turns_session ON engine_suspended_turns (session);
CREATE INDEX engine_sessions_parent ON engine_sessions (parent) WHERE parent IS NOT NULL;
CREATE VIEW engine_entries AS
    SELECT number, number >> 36 AS session, thread, parent, id, doc
    FROM engine_log WHERE kind = 'entry';
CREATE VIEW engine_queue_items AS
    SELECT number, number >> 36 AS session, thread, id, doc ->> '$.status' AS status, asked, doc
    FROM engine_log WHERE kind = 'item';
CREATE VIEW engine_events AS
    SELECT number, number >> 36 AS session, sequence, doc
    FROM engine_log WHERE kind = 'events';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('engine_leases',4);
INSERT INTO "sqlite_sequence" VALUES('engine_posts',1);
COMMIT;
